"""Audio: encoders of sound, and models that write or hear text from it."""

from __future__ import annotations

from dataclasses import replace

from kheads.anatomy.layout import Layout
from kheads.anatomy.patterns import BART, BERT, LLAMA, VIT, Table, alike

LAYOUTS: Table = {
    **alike(
        BART,
        """Wav2Vec2Attention HubertAttention UniSpeechAttention UniSpeechSatAttention SEWAttention
        Data2VecAudioAttention""",
    ),
    **alike(VIT, "ASTAttention"),
    "MoonshineAttention": (replace(LLAMA, counts={"config.num_key_value_heads": "kv"}, empty=False),),
    "WhisperAttention": (replace(BART, empty=False),),
    "Wav2Vec2BertSelfAttention": (
        Layout(
            o="linear_out",
            rows={"linear_q": "q", "linear_k": "k", "linear_v": "v", "linear_pos": "q"},
            width="head_size",
            per_head={"pos_bias_u": 0, "pos_bias_v": 0},
        ),
    ),
    "Wav2Vec2ConformerSelfAttention": (
        Layout(
            o="linear_out",
            rows={"linear_q": "q", "linear_k": "k", "linear_v": "v", "linear_pos": "q"},
            width="head_size",
            per_head={"pos_bias_u": 0, "pos_bias_v": 0},
        ),
    ),
    "ClapAudioAttention": (replace(BERT, per_head={"self.relative_position_bias_table": 1}),),
    "ClapTextAttention": (BERT,),
}

TYPES: dict[str, str] = {
    "audio-spectrogram-transformer": "ASTAttention",
    "clap": "ClapAudioAttention ClapTextAttention",
    "data2vec-audio": "Data2VecAudioAttention",
    "hubert": "HubertAttention",
    "moonshine": "MoonshineAttention",
    "sew": "SEWAttention",
    "unispeech": "UniSpeechAttention",
    "unispeech-sat": "UniSpeechSatAttention",
    "wav2vec2": "Wav2Vec2Attention",
    "wav2vec2-bert": "Wav2Vec2BertSelfAttention",
    "wav2vec2-conformer": "Wav2Vec2ConformerSelfAttention",
    "whisper": "WhisperAttention",
}
