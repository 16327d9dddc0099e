"""Values beside a vendor's name: hundreds of vendors issue keys without a form of their own."""

import re
from itertools import pairwise

from kp_middleware.privacy._rules import Rule, value_of
from kp_middleware.privacy._strength import entropy

_NAMES = """
    abuseipdb adafruit ado_ adobe adyen affirm agora airbrake airship airtable akamai algolia
    alibaba aliyun alphavantage amplitude anthropic apify apollo appcenter appdynamics appsflyer
    artifactory asana assemblyai atlassian auth0 avalara azure backblaze bamboo basecamp baseten
    bbc_ beamer binance bintray bitbucket bitfinex bitly bitmex bitrise bittrex blockfrost
    braintree branchio brevo browserstack bugsnag buildkite buttercms calendly cc_test censys
    cerebras chargebee checkly circleci clarifai clearbit clickhouse clickup clockify clojars
    cloudant cloudflare cloudinary cloudsmith codacy codeclimate codecov cohere coinbase
    coinmarketcap confluence confluent consumerkey contentful contentstack contribsys convertkit
    cos_ coveralls crowdin cryptocompare currencylayer customerio databricks datadog datadoghq
    datastax deepgram deepl deepseek definednetworking dependencytrack detectify devcycle devops
    digicert digitalocean discord docusign doppler dotdigital droneci dropbox duffel duosecurity
    dwolla dynatrace easypost elastic elevenlabs equinix etherscan etsy eventbrite facebook
    fastly fastmail fb_ fbapi fbsecret figma filestack finicity finnhub firebase firecrawl
    fireworks flagsmith flickr flutterwave foursquare freshbooks freshdesk frontapp fullstory
    gandi geocodio giphy gitguardian gitter gocardless godaddy gong grafana groovehq gumroad
    harness helpscout heroku hetzner hockeyapp honeybadger honeycomb hubspot huggingface hunter
    ibm_ ibmcloud imagekit imgur infobip infracost infura instagram intercom io_key ipdata
    ipgeolocation ipinfo ipstack jenkins jfrog jira jotform jumpcloud kaggle keenio klaviyo
    kolide kraken kucoin langfuse langsmith launchdarkly librato line_channel linear linkedin
    linode livekit lob locationiq logdna loggly logzio lokalise looker mailboxlayer mailchimp
    mailerlite mailgun mailjet mailtrap mandrill mapbox mapquest mattermost maxmind meraki
    message-bird message_bird messagebird microsoft_teams mistral mixpanel monday mongodb
    moralis nasdaq netlify neutrino new-relic new_relic newrelic newsapi nexmo ngrok notion
    nvidia nytimes okta onelogin onesignal onfido openai opencage openshift openweather opsgenie
    optimizely outreach paddle pagerduty particle paypal paystack pendo perplexity pinata
    pinecone pingdom pipedream pipedrive pivotal plaid planetscale plivo polygon posthog postman
    postmark prefect privateai prodpad proxycrawl pubnub pulumi purestake pushbullet pusher
    pushover qase qualtrics quickbooks quicknode rapidapi razorpay readme recaptcha rechargeapps
    recurly redislabs replicate ringcentral riotgames rollbar runpod salesforce samsara
    saucelabs scaleway scalingo scalyr scraperapi scrapingbee securitytrails segment sendbird
    sendgrid sendinblue sentry serpapi shippo shodan shopify shortcut shutterstock sidekiq
    signalwire sinch skyscanner smartling smartsheet snyk softlayer sonar sonarcloud sonarqube
    sparkpost splunk spoonacular spotify square squarespace stability statuscake storyblok
    strava stripe stytch sumo sumologic supabase surveymonkey tailscale tatum telegram telnyx
    tencent thingsboard threatstack tiingo todoist togetherai tomorrowio travis trello
    tripactions twilio twitch twitter typeform unsplash uptimerobot urlscan vault vercel
    virustotal vonage vsts vultr wakatime wandb weatherstack webex webflow weights_and_biases
    wistia workday worldweather wunderground xai_ xero xray yandex yelp youtube zapier zendesk
    zenscrape zeplin zerobounce zipcode zoho zoom zulip
"""
_VENDORS = tuple(_NAMES.split())
_ALONE = frozenset(_VENDORS)
_BY_THREE = {
    three: [one for one in _VENDORS if one[:3] == three] for three in {one[:3] for one in _VENDORS}
}
_NAME = r"[\w .-]{2,60}+"
_IS = r"(?:=>|->|[:?|]{0,3}=|\|\||:|,|>)"
_HEX = re.compile(r"(?:[0-9a-fA-F]{20,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z")
_TELLS = re.compile(
    r"key|token|tkn|secret|pass|pw|pat\b|auth|cred|cert|api|access|login|license|sign|bearer|reporter_?id",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"(?:(?i:hash|digest|sha\d*|md5|version|ver|commit|rev|release|build|image|tag|url|uri|host|domain|name"
    r"|user|e?mail|path|file|dir|region|zone|type|model|cursor|checksum|fingerprint|public[_-]?key)"
    r"|(?i:(?<![A-Za-z])(?<!access_)(?<!access-)(?<!reporter_)ids?)|(?<=[a-z])(?<!ccess)I[dD]s?)\Z",
)


def _is_issued(match: re.Match[str]) -> bool:
    """The name is a vendor's and says nothing else of the value, and the value is no word."""
    name = match["name"].strip()
    if not _names_a_vendor(match) or _OTHER.search(name):
        return False
    value = value_of(match)
    alone = name.lower() in _ALONE
    told = alone or _TELLS.search(name) is not None
    if _HEX.match(value):
        return told and len(set(value)) > 6
    digits = sum(map(str.isdigit, value))
    if digits == len(value) or entropy(value) < 3 or _is_made_of_words(value):
        return False
    if re.search(r"[a-z]", value) and re.search(r"[A-Z]", value):
        return len(value) >= (14 if told else 20) and (digits > 1 or _changes_case(value))
    return told and digits >= 4 and (len(value) >= 24 or not alone) and _is_one_run(value)


def _names_a_vendor(match: re.Match[str]) -> bool:
    """A vendor's name begins a word, or the next part of one: ``MY_PLAID``, ``myPlaid``."""
    name = match["name"]
    lowered = name.lower()
    known = (one for one in _BY_THREE.get(lowered[:3], ()) if lowered.startswith(one))
    vendor = name[: len(next(known, ""))]
    before = match.string[match.start() - 1 : match.start()]
    begins = not before.isalpha() or (before.islower() and vendor[:1].isupper())
    return vendor != "" and begins and not (vendor[0].islower() and vendor[-1].isupper())


def _changes_case(value: str) -> bool:
    """At a third of its letters, as no name does."""
    cases = [character.isupper() for character in value if character.isalpha()]
    return sum(a != b for a, b in pairwise(cases)) * 3 > len(cases)


def _is_one_run(value: str) -> bool:
    """``mailchimp-like-us12`` is some runs, a key of one case is one."""
    return any(len(run) >= 14 for run in re.findall("[A-Za-z0-9]+", value))


def _is_made_of_words(value: str) -> bool:
    """``MyService-2024-Production``, ``releases/V2/linux64``."""
    parts = re.split(r"[-_./+=~]|(?<=[a-z])(?=[A-Z][a-z])", value)
    return all(re.fullmatch(r"v?\d+|(?:[A-Z]?[a-z]+|[A-Z]*)\d{0,4}", part) for part in parts)


VENDOR_RULES: tuple[Rule, ...] = (
    Rule(
        "api_key",
        "secret",
        rf"(?P<name>{_NAME})\\{{0,7}}[\"'`\])]{{0,3}}\s{{0,16}}{_IS}\s{{0,16}}\\{{0,7}}[\"'`(\[]{{0,3}}"
        r"(?P<value>[\w+/=~.-]{14,512}+)(?![\w(:@])",
        _VENDORS,
        check=_is_issued,
    ),
)
