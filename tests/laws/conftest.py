"""How hard Hypothesis tries: a busy machine must not fail a law for being slow."""

from hypothesis import settings

settings.register_profile("laws", deadline=None, max_examples=60)
settings.load_profile("laws")
