"""Text generation with transformers: a small Llama with random weights answers 64 prompts at once.

Innocent: the KV cache grows by 1 MiB a token up to 40 tokens, and the program releases it after each request.
"""
from program import run

BATCH, NEW_TOKENS, TOKEN_PERIOD = 64, 40, 0.4


def pacing(program, torch, transformers):
    """Returns a stopping criterion that waits after each token and ends the request with the program."""
    class Pace(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **options):
            program.pause(TOKEN_PERIOD)
            return torch.full((len(input_ids),), program.left() <= 0, dtype=torch.bool, device=input_ids.device)
    return transformers.StoppingCriteriaList([Pace()])


def main(program):
    torch = program.torch()
    transformers = program.load("transformers")
    config = transformers.LlamaConfig(
        vocab_size=8192, hidden_size=2048, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=1024,
    )
    model = transformers.LlamaForCausalLM(config).half().cuda().eval()
    settings = transformers.GenerationConfig(
        max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    for _ in program.every(0.5):
        prompt = torch.randint(3, 8192, (BATCH, program.random.randint(32, 160)), device="cuda")
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), generation_config=settings,
            stopping_criteria=pacing(program, torch, transformers))


if __name__ == "__main__":
    run(main, "innocent")
