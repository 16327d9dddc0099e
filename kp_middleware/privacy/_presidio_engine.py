"""Names and places, by Presidio with a spaCy model that the user brings.

Only what the model sees is asked for: Presidio's own patterns find what ours do, and one of them
opens a connection.
"""

from collections.abc import Iterator
from typing import Any

from kp_middleware.errors import MissingExtraError
from kp_middleware.privacy._engine import Finder

try:
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer
except ModuleNotFoundError as error:
    raise MissingExtraError("names") from error

_LABELS = {"PERSON": "name", "LOCATION": "location"}
_NOT_NEEDED = ("tagger", "parser", "lemmatizer", "attribute_ruler")


def presidio_finder(model: str) -> Finder:
    """Finds people and places with an installed model such as ``en_core_web_sm``.

    Raises:
        OSError: If the model is not installed; it is never downloaded.
    """
    loaded: Any = spacy.load(model, exclude=_NOT_NEEDED)
    language = str(loaded.lang)
    engine: Any = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
    engine.nlp = {language: loaded}  # its own way to load a model would download it
    recognizer = SpacyRecognizer(supported_language=language)
    registry = RecognizerRegistry([recognizer], supported_languages=[language])
    analyzer = AnalyzerEngine(registry, engine, supported_languages=[language])

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for result in analyzer.analyze(text, language, entities=[*_LABELS]):
            yield result.start, result.end, _LABELS[result.entity_type]

    return find
