WRITTEN_OUT = ("llama", "mistral", "qwen2", "qwen3")  # model types
SILU = ("SiLU", "SiLUActivation")  # classes of torch and of transformers
import torch


def has_plain_layers(model):
    return False


def rotate(x, cos, sin):
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
