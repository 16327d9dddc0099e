"""Rules for credentials in a known format: private keys, JWTs, password hashes, webhooks."""

import base64
import re
from itertools import pairwise

from kp_middleware.privacy._checks import is_credential, is_random
from kp_middleware.privacy._rules import SPACE, Rule, value_of, words
from kp_middleware.privacy._strength import entropy

_KIND = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")
_HOOKS = (
    (r"hooks\.slack(?:-gov)?\.com/[a-z]{2,12}", "hooks."),
    (r"hooks\.zapier\.com/hooks", "hooks."),
    (r"(?:ptb\.|canary\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks", "discord"),
    (r"chat\.googleapis\.com/v1/spaces", "chat."),
    (r"[a-z0-9-]{1,60}\.webhook\.office\.com/\w{1,20}", "webhook.office."),
    (r"outlook\.office(?:365)?\.com/webhook\w{0,4}", "outlook."),
    (r"oapi\.dingtalk\.com/robot", "oapi."),
    (r"open\.(?:feishu|larksuite)\.cn/open-apis", "open."),
    (r"open\.larksuite\.com/open-apis", "open."),
    (r"qyapi\.weixin\.qq\.com/cgi-bin/webhook", "qyapi."),
    (r"[a-z0-9-]{1,60}\.logic\.azure\.com[:\w/]{0,40}/workflows", "http"),
    (r"hook\.(?:[a-z0-9]{2,4}\.)?(?:integromat|make)\.com", "hook."),
    (r"maker\.ifttt\.com/(?:trigger|use)", "maker."),
    (r"events\.pagerduty\.com/integration", "events."),
    (r"api\.softlayer\.com/(?:soap|rest|xmlrpc)/v\d(?:\.\d)?", "api.softlayer"),
)


def _is_of_a_secret(match: re.Match[str]) -> bool:
    """Return whether the same manifest is of a Kubernetes Secret."""
    before = match.string[max(0, match.start() - 2000) : match.start()].rpartition("\n---")[2]
    after = match.string[match.end() : match.end() + 2000].partition("---")[0]
    return _KIND.search(before + after) is not None and "{{" not in match["value"]


ARMOUR_RULES: tuple[Rule, ...] = (
    Rule(
        "jwt",
        "secret",
        r"(?<![\w-])eyJ[\w-]{10,4096}+\.[\w-]{0,8192}+\.[\w-]{0,8192}+(?:\.[\w-]{1,8192}+){0,2}",
        ("eyj",),
    ),
    Rule(
        "private_key",
        "secret",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----)[\S\s]){1,20000}?-----END [A-Z0-9 ]{0,60}-----"
        r"|[A-Za-z0-9+/=\s\\]{0,20000})",  # cut off
        ("-----begin ",),
    ),
    Rule(
        "private_key",
        "secret",
        r"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?:(?!----)[\S\s]){1,20000}"
        r"(?:---- END SSH2 ENCRYPTED PRIVATE KEY ----)?",
        ("---- begin ",),
    ),
    Rule(
        "private_key",
        "secret",
        r"Private-Lines: \d{1,3}\s+(?:[A-Za-z0-9+/=]{1,80}(?:\s{1,4}|\Z)){1,200}"
        r"|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\s]{60,20000}",
        ("private-lines: ", "b3blbnnzac1rzxktdje"),
    ),
    Rule(
        "password_hash",
        "secret",
        r"\$(?:2[abxy]|1|5|6|7|8|9|y|gy|sha1|apr1|argon2(?:id?|d)|pbkdf2[\w-]{0,12}|scrypt)"
        r"\$[./A-Za-z0-9$,=+-]{20,300}",
        ("$",),
    ),
    Rule(
        "password_hash",
        "secret",
        r"\$krb5(?:asrep|tgs|pa)\$\d{1,2}\$[\w.$*@:/-]{32,8192}",
        ("$krb5",),
    ),
    Rule(  # Django's, Werkzeug's, LDAP's
        "password_hash",
        "secret",
        r"(?<!\w)(?:pbkdf2[_:]sha\d{1,3}[$:]\d{3,8}\$|scrypt:\d{3,8}:\d{1,2}:\d{1,2}\$|bcrypt_sha256\$)"
        r"[\w.$+/=-]{20,300}|\{(?:SSHA\d{0,3}|PBKDF2[\w-]{0,10}|CRYPT)\}[\w.$+/=-]{20,300}",
        ("pbkdf2", "scrypt:", "bcrypt_sha256$", "{ssha", "{pbkdf2", "{crypt}"),
    ),
    Rule(
        "webhook_url",
        "secret",
        rf"(?:https?://)?(?:{'|'.join(pattern for pattern, _ in _HOOKS)})[/?][\w/?=&%.@-]{{8,400}}",
        ("http", *dict.fromkeys(start for _, start in _HOOKS)),
    ),
    Rule(
        "webhook_url",
        "secret",
        r"[a-z]{4,5}://(?:[a-z0-9-]{1,40}\.){0,3}thingsboard\.(?:cloud|io)/api/v1/(?P<value>[\w-]{16,64})",
        needs=("thingsboard.",),
    ),
    Rule(  # the values of a Secret of Kubernetes
        "password",
        "secret",
        r"(?<![\w-])data:[ \t]{0,4}\n(?P<value>(?:(?:[ \t]{1,12}[^\n]{0,4096}+"
        r"|[ \t]{0,12}#[^\n]{0,200}+)(?=\n|\Z)\n?){1,200}(?<!\n))",
        ("data:",),
        ("secret",),
        check=_is_of_a_secret,
        reach=2000,
    ),
)


_S = f"[{SPACE}]"
_DATABASES = words(
    "postgres|postgresql|postgis|mysql|mariadb|mongodb|redis|rediss|valkey|amqp|amqps|"
    "mssql|sqlserver|oracle|clickhouse|cockroachdb|snowflake|redshift|vertica|db2|"
    "cassandra|couchbase|neo4j|bolt|memcached|nats|stomp|mqtt|mqtts"
)
_SCHEMES = "token|apikey|api-key|key|bot|jwt|oauth|digest|negotiate|hawk|[A-Za-z][A-Za-z0-9-]{2,20}"
_TEMPLATE = re.compile(
    r"[$%{<*].*|x{3,}|[^:]*:(?:[$%{<*].*|x{3,}|\.{3}|pass(?:word)?|pwd|)", re.IGNORECASE
)


def _is_filled_in(match: re.Match[str]) -> bool:
    return not _TEMPLATE.fullmatch(value_of(match))


def _is_user_and_password(match: re.Match[str]) -> bool:
    """Return whether the value is base64 of a text with a colon, or looks like a credential."""
    text = value_of(match)
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return len(text) >= 16 and is_credential(match)
    return b":" in decoded or is_credential(match)


CREDENTIAL_RULES: tuple[Rule, ...] = (
    Rule(  # whole, as the reference does: the host of a database is nobody's business either
        "connection_string",
        "secret",
        rf"(?i:(?:{'|'.join(_DATABASES)})(?:\+[a-z0-9]{{1,20}})?)://"
        rf"(?:[^{SPACE}/\"'`<>@]{{0,256}}+@)?[^{SPACE}\"'`<>,}}\])]{{1,512}}+",
        _DATABASES,
        ("://",),
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"://(?P<value>[^{SPACE}:/@\"'`<>?#]{{0,128}}+:[^{SPACE}/\"'`<>]{{1,256}})@(?=[\w\[.$-])",
        ("://",),
        check=_is_filled_in,
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"://(?P<value>[^{SPACE}:/@\"'`<>?#]{{16,256}}+):?@(?=[\w\[.$-])",
        ("://",),
        check=is_random,
    ),
    Rule(
        "bearer_token",
        "secret",
        rf"(?<![A-Za-z0-9])(?i:bearer)(?:{_S}{{1,4}}|[:=]{_S}{{0,4}})\\{{0,3}}[\"']?"
        r"(?P<value>[\w.~+/=-]{12,8192}+)",
        ("bearer",),
        check=is_credential,
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"(?<![A-Za-z])(?i:basic){_S}{{1,4}}(?P<value>[A-Za-z0-9+/_-]{{8,1024}}+={{0,2}})(?![\w.])",
        ("basic",),
        check=_is_user_and_password,
    ),
    Rule(
        "bearer_token",
        "secret",
        rf"(?i:authorization)\W{{0,8}}[:=,]\W{{0,8}}(?i:{_SCHEMES}){_S}{{1,3}}"
        rf"(?P<value>[^{SPACE}\"'`<>|=][^\n\r\"'`<>]{{5,2048}})",
        ("authorization",),
        check=is_credential,
    ),
    Rule(  # what proves that the password is known
        "bearer_token",
        "secret",
        r"(?<!\w)response=\\{0,7}[\"']?(?P<value>[0-9a-f]{32,128})(?!\w)",
        ("response=",),
        ("digest",),
    ),
    Rule(
        "bearer_token",
        "secret",
        r"(?<![A-Za-z])Signature=(?P<value>[0-9a-f]{40,128})(?!\w)",
        ("signature=",),
    ),
    Rule(
        "connection_string",
        "secret",
        rf"(?i:jdbc:oracle:(?:thin|oci8?)):[^{SPACE}/@\"'`<>]{{1,64}}/(?P<value>[^{SPACE}@\"'`<>]{{1,128}}+)@",
        ("jdbc:oracle:",),
        check=_is_filled_in,
    ),
    Rule(  # curl -u user:x
        "password",
        "secret",
        rf"(?<![\w-])(?:-u|--(?:proxy-)?user(?:name)?)(?:[{SPACE}=:]{{1,3}}|[\"'],{_S}{{0,2}}|(?=\w))[\"']?"
        rf"[^{SPACE}:\"'`<>]{{0,64}}:(?P<value>(?![\d/]{{1,6}}(?!\w))[^{SPACE}\"'`<>]{{2,256}}+)",
        ("-u", "--user", "--proxy-user"),
        check=_is_filled_in,
    ),
    Rule(  # netrc
        "password",
        "secret",
        rf"(?<!\w)login{_S}{{1,4}}[^{SPACE}]{{1,128}}+{_S}{{1,8}}password{_S}{{1,4}}"
        rf"(?P<value>[^{SPACE}]{{1,256}}+)",
        ("login",),
    ),
)


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
    r"|(?i:(?<![A-Za-z])(?<!access_)(?<!access-)(?<!reporter_)ids?)|(?<=[a-z])(?<!ccess)I[dD]s?)\Z"
)


def _is_issued(match: re.Match[str]) -> bool:
    """Return whether a vendor's name is followed by a key, not by a word or another value."""
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
    """Return whether a vendor's name begins a word or a part of one: ``MY_PLAID``, ``myPlaid``."""
    name = match["name"]
    lowered = name.lower()
    known = (one for one in _BY_THREE.get(lowered[:3], ()) if lowered.startswith(one))
    vendor = name[: len(next(known, ""))]
    before = match.string[match.start() - 1 : match.start()]
    begins = not before.isalpha() or (before.islower() and vendor[:1].isupper())
    return vendor != "" and begins and not (vendor[0].islower() and vendor[-1].isupper())


def _changes_case(value: str) -> bool:
    """Return whether more than a third of the letters change case, as in no name."""
    cases = [character.isupper() for character in value if character.isalpha()]
    return sum(a != b for a, b in pairwise(cases)) * 3 > len(cases)


def _is_one_run(value: str) -> bool:
    """Return whether the value has a long unbroken run, unlike ``mailchimp-like-us12``."""
    return any(len(run) >= 14 for run in re.findall("[A-Za-z0-9]+", value))


def _is_made_of_words(value: str) -> bool:
    """Return whether the value is like ``MyService-2024-Production`` or ``releases/V2/linux64``."""
    parts = re.split(r"[-_./+=~]|(?<=[a-z])(?=[A-Z][a-z])", value)
    return all(re.fullmatch(r"v?\d+|(?:[A-Z]?[a-z]+|[A-Z]*)\d{0,4}", part) for part in parts)


VENDOR_RULES: tuple[Rule, ...] = (
    Rule(
        "api_key",
        "secret",
        rf"(?P<name>{_NAME})\\{{0,7}}[\"'`\])]{{0,3}}\s{{0,16}}{_IS}\s{{0,16}}\\{{0,7}}[\"'`(\[]{{0,3}}"
        r"(?P<value>[\w+/=~.-]{14,512}+)(?![\w(:@])",
        _VENDORS,
        ("LONG",),
        check=_is_issued,
    ),
)
