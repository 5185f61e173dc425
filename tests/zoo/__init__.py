"""One tiny model of every supported type, keyed by its type; variants of a type follow a colon."""

from zoo import audio, decoders, encoder_decoders, refused, text_encoders, vision
from zoo.tiny import Tiny, outputs, prompt, randomise

ZOO: dict[str, Tiny] = {
    **text_encoders.MODELS,
    **vision.MODELS,
    **audio.MODELS,
    **encoder_decoders.MODELS,
    **decoders.MODELS,
}

__all__ = ["ZOO", "Tiny", "outputs", "prompt", "randomise", "refused"]
