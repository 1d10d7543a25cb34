"""The zoo: one small model of each architecture, with random weights, and the data it trains on.

Those of transformers are built from a configuration, without dropout, whose draws differ between
techniques. A row is as wide as is needed for four heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import zoo_data
import zoo_networks
from saturn.tasks.definition import TaskDefinition
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from zoo_data import IMAGE_SIZE, NUM_CHANNELS, NUM_CLASSES, VOCABULARY

#: Adam divides a gradient by its own size: those that are nothing but rounding would come out as
#: large as any other, so eps is large.
OPTIMIZER = partial(AdamW, eps=1e-3)


@dataclass(frozen=True)
class Architecture:
    """A kind of model, and a task that trains a small one."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    loader: Callable[[], DataLoader[Any]]
    loss_function: Callable[..., Any] | None = None
    #: What a warm parent imports for it.
    preload: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)

    def task(self) -> TaskDefinition:
        return TaskDefinition(
            name=self.name,
            get_model=self.build,
            get_dataloader=self.loader,
            loss_function=self.loss_function,
            loss_weight=None,
            lr=0.01,
            epochs=None,
            batch_count=1000,
            optimizer_cls=OPTIMIZER,  # type: ignore[arg-type]
            kwargs={},
            hints=dict(self.hints),
            seed=3,
        )


def build_transformer(model: str, config: str, options: Mapping[str, Any]) -> nn.Module:
    """A model of transformers with random weights.

    They are ten times as large as it makes them: else attention would be as good as even, and a
    wrong one would not show in a loss.
    """
    import transformers

    made = getattr(transformers, config)(**options)
    for part in (made, getattr(made, "text_config", None), getattr(made, "vision_config", None)):
        for name in ("initializer_range", "init_std"):
            if hasattr(part, name):
                setattr(part, name, 10 * getattr(part, name))
    built: nn.Module = getattr(transformers, model)(made)
    return built


def with_adapters(build: Callable[[], nn.Module], layers: list[str], **options: Any) -> nn.Module:
    """A model whose linear layers of these names have LoRA adapters."""
    import peft

    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=layers, **options)
    adapted: nn.Module = peft.get_peft_model(build(), config)  # type: ignore[arg-type]
    # As built, B is zero, and a gradient that goes through it too.
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return adapted


class Returning(nn.Module):
    """A model that is told to return its loss."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.inner = build()

    def forward(self, **batch: Any) -> Any:
        return self.inner(**batch, return_loss=True)


#: (model, configuration, its options)
_Row = tuple[str, str, Mapping[str, Any]]


def _row(model: str, config: str, *options: Mapping[str, Any], **more: Any) -> _Row:
    return model, config, _all(*options, **more)


def _all(*options: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for each in (*options, more) for name, value in each.items()}


def _causal(prefix: str, *options: Mapping[str, Any], **more: Any) -> _Row:
    return _row(f"{prefix}ForCausalLM", f"{prefix}Config", *options, **more)


def _masked(prefix: str, *options: Mapping[str, Any], **more: Any) -> _Row:
    return _row(f"{prefix}ForMaskedLM", f"{prefix}Config", *options, **more)


def _seq2seq(prefix: str, *options: Mapping[str, Any], **more: Any) -> _Row:
    return _row(f"{prefix}ForConditionalGeneration", f"{prefix}Config", *options, **more)


def _image(prefix: str, *options: Mapping[str, Any], **more: Any) -> _Row:
    more["num_labels"] = NUM_CLASSES
    return _row(f"{prefix}ForImageClassification", f"{prefix}Config", *options, **more)


_ENDS = _all(bos_token_id=0, eos_token_id=1, pad_token_id=2)
_WORDS = _all(_ENDS, vocab_size=VOCABULARY)
#: What most configurations call their sizes, and what some others do.
_SIZES = _all(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4)
_MANY_HEADS = _all(_WORDS, _SIZES, num_key_value_heads=4, max_position_embeddings=32)
_GROUPED = _all(_MANY_HEADS, num_key_value_heads=2)
_GPT = _all(_WORDS, n_embd=16, n_layer=3, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0)
_DROPS = _all(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
_NO_DROPS = _all(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
_BERT = _all(_WORDS, _SIZES, _DROPS, max_position_embeddings=32)
_PIXELS = _all(image_size=IMAGE_SIZE, patch_size=4, num_channels=NUM_CHANNELS)
_VISION = _all(_SIZES, _DROPS, _PIXELS)
_T5 = _all(
    *(_WORDS,),
    **_all(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4),
    **_all(decoder_start_token_id=0, dropout_rate=0.0),
)
_BART = _all(
    *(_WORDS, _NO_DROPS),
    **_all(d_model=16, encoder_layers=2, decoder_layers=2, max_position_embeddings=32),
    **_all(encoder_attention_heads=4, decoder_attention_heads=4),
    **_all(encoder_ffn_dim=32, decoder_ffn_dim=32),
    **_all(decoder_start_token_id=1, forced_eos_token_id=1),
)
_EXPERTS = _all(_GROUPED, num_experts=4, num_experts_per_tok=2, output_router_logits=False)

_DECODERS = {
    "GPT": _row("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _GPT, attn_pdrop=0.0),
    "GPT-2": _row("GPT2LMHeadModel", "GPT2Config", _GPT, attn_pdrop=0.0),
    "GPT-J": _causal("GPTJ", _GPT, attn_pdrop=0.0, rotary_dim=2),
    "GPT-Neo": _causal(
        *("GPTNeo", _WORDS),
        **_all(hidden_size=16, num_layers=2, num_heads=4, window_size=4),
        **_all(attention_types=[[["global", "local"], 1]], max_position_embeddings=32),
        **_all(resid_dropout=0.0, embed_dropout=0.0, attention_dropout=0.0),
    ),
    "GPT-NeoX": _causal("GPTNeoX", _MANY_HEADS, hidden_dropout=0.0),
    "CodeGen": _causal("CodeGen", _GPT, attn_pdrop=0.0, rotary_dim=2),
    "CTRL": _row("CTRLLMHeadModel", "CTRLConfig", _GPT, dff=32),
    "OPT": _causal(
        *("OPT", _WORDS, _NO_DROPS),
        **_all(hidden_size=16, ffn_dim=32, num_hidden_layers=3, num_attention_heads=4),
        **_all(max_position_embeddings=32, word_embed_proj_dim=16),
    ),
    "BLOOM": _causal("Bloom", _WORDS, hidden_size=16, n_layer=3, n_head=4),
    "MPT": _causal("Mpt", _WORDS, d_model=16, n_layers=3, n_heads=4, max_seq_len=32),
    "Falcon": _causal("Falcon", _WORDS, _SIZES),
    "XGLM": _causal(
        *("XGLM", _WORDS, _NO_DROPS),
        **_all(d_model=16, ffn_dim=32, num_layers=3, attention_heads=4),
        max_position_embeddings=32,
    ),
    "BioGPT": _causal("BioGpt", _BERT, activation_dropout=0.0, layerdrop=0.0),
    "Llama": _causal("Llama", _GROUPED),
    "Mistral": _causal("Mistral", _GROUPED, sliding_window=6),
    "Qwen2": _causal("Qwen2", _GROUPED),
    "Qwen3": _causal("Qwen3", _GROUPED, head_dim=4),
    "Gemma": _causal("Gemma", _GROUPED, head_dim=4),
    "Gemma 2": _causal("Gemma2", _GROUPED, head_dim=4, sliding_window=6),
    "Phi": _causal("Phi", _MANY_HEADS),
    "Phi-3": _causal("Phi3", _GROUPED),
    "StableLM": _causal("StableLm", _GROUPED),
    "StarCoder2": _causal("Starcoder2", _GROUPED, residual_dropout=0.0, embedding_dropout=0.0),
    "OLMo 2": _causal("Olmo2", _GROUPED),
    "Cohere": _causal("Cohere", _GROUPED),
    "Granite": _causal("Granite", _GROUPED),
}
_ENCODERS = {
    "BERT": _masked("Bert", _BERT),
    "RoBERTa": _masked("Roberta", _BERT, max_position_embeddings=40),
    "ELECTRA": _masked("Electra", _BERT, embedding_size=16),
    "ALBERT": _masked("Albert", _BERT, embedding_size=8, classifier_dropout_prob=0.0),
    "DistilBERT": _masked(
        *("DistilBert", _WORDS),
        **_all(dim=16, n_layers=3, n_heads=4, hidden_dim=32, max_position_embeddings=32),
        **_all(dropout=0.0, attention_dropout=0.0),
    ),
    "DeBERTa-v2": _masked("DebertaV2", _BERT, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "ModernBERT": _masked("ModernBert", _BERT, cls_token_id=0, sep_token_id=1, local_attention=4),
    "MPNet": _masked("MPNet", _BERT, max_position_embeddings=40),
    "FNet": _masked("FNet", _WORDS, _SIZES, hidden_dropout_prob=0.0, max_position_embeddings=32),
    "XLNet": _row(
        *("XLNetLMHeadModel", "XLNetConfig", _WORDS),
        **_all(d_model=16, n_layer=3, n_head=4, d_inner=32, dropout=0.0),
    ),
}
_ENCODER_DECODERS = {
    "T5": _seq2seq("T5", _T5),
    "mT5": _seq2seq("MT5", _T5),
    "BART": _seq2seq("Bart", _BART),
    "mBART": _seq2seq("MBart", _BART),
    "Pegasus": _seq2seq("Pegasus", _BART),
    "Marian": _row("MarianMTModel", "MarianConfig", _BART),
    "Blenderbot": _seq2seq("Blenderbot", _BART),
}
_IMAGE_CLASSIFIERS = {
    "ViT": _image("ViT", _VISION),
    "DeiT": _image("DeiT", _VISION),
    "DINOv2": _image("Dinov2", _VISION, mlp_ratio=2),
    "BEiT": _image("Beit", _VISION, drop_path_rate=0.0),
    "Swin": _image(
        *("Swin", _PIXELS),
        **_all(embed_dim=16, depths=[2, 1], num_heads=[4, 4], window_size=4),
        **_all(patch_size=2, drop_path_rate=0.0),
    ),
    "ConvNeXt": _image(
        "ConvNext", num_channels=3, hidden_sizes=[8, 16], depths=[1, 2], num_stages=2
    ),
    "SegFormer": _image(
        *("Segformer", _DROPS),
        **_all(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16]),
        **_all(num_attention_heads=[2, 4], patch_sizes=[3, 3], strides=[2, 2], mlp_ratios=[2, 2]),
        **_all(drop_path_rate=0.0, classifier_dropout_prob=0.0),
    ),
    "MobileNetV2 of transformers": _image(
        *("MobileNetV2",),
        **_all(depth_multiplier=0.25, classifier_dropout_prob=0.0, output_stride=8),
        # Its batch norms, one after the other, make of a last bit another loss within three steps.
        **_all(layer_norm_eps=0.1, initializer_range=0.005),
    ),
    "ResNet of transformers": _image(
        "ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]
    ),
}
_STATE_SPACES = {
    "Mamba": _causal(
        *("Mamba", _WORDS),
        **_all(hidden_size=16, state_size=4, num_hidden_layers=3, initializer_range=0.02),
    ),
    "Mamba-2": _causal(
        *("Mamba2", _WORDS),
        **_all(hidden_size=16, state_size=4, num_hidden_layers=2),
        **_all(num_heads=4, head_dim=8, n_groups=2, chunk_size=4),
    ),
    "RecurrentGemma": _causal(
        "RecurrentGemma", _GROUPED, head_dim=4, lru_width=16, attention_window_size=6
    ),
}
_MIXTURES = {
    "Mixtral": _causal("Mixtral", _EXPERTS, num_local_experts=4),
    "Qwen2-MoE": _causal(
        "Qwen2Moe", _EXPERTS, moe_intermediate_size=16, shared_expert_intermediate_size=16
    ),
    "Qwen3-MoE": _causal("Qwen3Moe", _EXPERTS, moe_intermediate_size=16, head_dim=4),
    "OLMoE": _causal("Olmoe", _EXPERTS),
}
_WAV2VEC2 = _all(
    *(_WORDS, _SIZES),
    **_all(conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2),
    **_all(num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2),
    **_all(num_labels=NUM_CLASSES, classifier_proj_size=8),
    **_all(hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, layerdrop=0.0),
    **_all(feat_proj_dropout=0.0, final_dropout=0.0, apply_spec_augment=False),
)
_WHISPER = _all(
    *(_BART,),
    **_all(num_mel_bins=8, max_source_positions=8, max_target_positions=32),
    **_all(begin_suppress_tokens=None, suppress_tokens=None),
)
_AST = _all(
    *(_SIZES, _DROPS),
    **_all(patch_size=4, frequency_stride=4, time_stride=4, max_length=16, num_mel_bins=16),
    num_labels=NUM_CLASSES,
)
_TEXT = _all(_WORDS, _SIZES, max_position_embeddings=32)
_TEXT_AND_VISION = _all(text_config=_TEXT, vision_config=_all(_SIZES, _PIXELS))
_BLIP = _all(
    _TEXT_AND_VISION,
    text_config=_all(_TEXT, _DROPS, encoder_hidden_size=16, label_smoothing=0.0),
    projection_dim=16,
)


def _of(
    family: str, loader: Callable[[], DataLoader[Any]], rows: Mapping[str, _Row]
) -> list[Architecture]:
    """Architectures of transformers: by name, (model, configuration, its options)."""
    return [
        Architecture(
            name,
            family,
            partial(build_transformer, model, config, options),
            loader,
            preload=f"transformers:{model}",
        )
        for name, (model, config, options) in rows.items()
    ]


def _contrastive(name: str, model: str, config: str, options: Mapping[str, Any]) -> Architecture:
    build = partial(build_transformer, model, config, options)
    return Architecture(
        name,
        "contrastive",
        partial(Returning, build),
        zoo_data.texts_and_images,
        preload=f"transformers:{model}",
    )


def _network(name: str, family: str, build: Callable[[], nn.Module]) -> Architecture:
    return Architecture(
        name,
        family,
        build,
        zoo_data.pairs_of_images_and_classes,
        nn.functional.cross_entropy,
    )


def _adapted(name: str, rows: Mapping[str, _Row], of: str, layers: list[str]) -> Architecture:
    model, config, options = rows[of]
    build = partial(build_transformer, model, config, options)
    transposed = {"fan_in_fan_out": True} if of == "GPT-2" else {}
    return Architecture(
        name,
        "adapters",
        partial(with_adapters, build, layers, **transposed),
        zoo_data.images if rows is _IMAGE_CLASSIFIERS else zoo_data.tokens,
        preload="peft:PeftModel",
    )


ZOO: list[Architecture] = [
    *_of("decoder", zoo_data.tokens, _DECODERS),
    *_of("encoder", zoo_data.tokens, _ENCODERS),
    *_of("encoder and decoder", zoo_data.pairs_of_sequences, _ENCODER_DECODERS),
    *_of("vision", zoo_data.images, _IMAGE_CLASSIFIERS),
    *_of("audio", zoo_data.spectrograms_to_text, {"Whisper": _seq2seq("Whisper", _WHISPER)}),
    *_of(
        "audio",
        zoo_data.waves,
        {
            name: _row(f"{prefix}ForSequenceClassification", f"{prefix}Config", _WAV2VEC2)
            for name, prefix in (("wav2vec 2.0", "Wav2Vec2"), ("HuBERT", "Hubert"))
        },
    ),
    *_of(
        "audio",
        zoo_data.spectrograms,
        {"AST": _row("ASTForAudioClassification", "ASTConfig", _AST)},
    ),
    _contrastive("CLIP", "CLIPModel", "CLIPConfig", _all(_TEXT_AND_VISION, projection_dim=16)),
    _contrastive("SigLIP", "SiglipModel", "SiglipConfig", _TEXT_AND_VISION),
    *_of("vision and text", zoo_data.captions, {"BLIP": _seq2seq("Blip", _BLIP)}),
    *_of("mixture of experts", zoo_data.tokens, _MIXTURES),
    *_of("state space", zoo_data.tokens, _STATE_SPACES),
    _network("ResNet", "convolutional", zoo_networks.ResNet),
    _network("VGG", "convolutional", zoo_networks.vgg),
    _network("MobileNet", "convolutional", zoo_networks.mobilenet),
    _network("DenseNet", "convolutional", zoo_networks.densenet),
    _network("MLP-Mixer", "plain torch", zoo_networks.Mixer),
    _network("nn.TransformerEncoder", "plain torch", zoo_networks.PatchTransformer),
    _network("LSTM", "plain torch", zoo_networks.Recurrent),
    Architecture(
        "U-Net",
        "diffusion",
        zoo_networks.UNet,
        zoo_data.noisy_images,
        nn.functional.mse_loss,
    ),
    _adapted("Llama with LoRA", _DECODERS, "Llama", ["q_proj", "v_proj", "o_proj", "down_proj"]),
    _adapted("GPT-2 with LoRA", _DECODERS, "GPT-2", ["c_attn", "c_proj", "c_fc"]),
    _adapted("BERT with LoRA", _ENCODERS, "BERT", ["query", "value", "dense"]),
    _adapted("ViT with LoRA", _IMAGE_CLASSIFIERS, "ViT", ["q_proj", "v_proj", "fc1", "fc2"]),
]
