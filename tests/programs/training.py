"""Train 24 layers of a bf16 MLP, and print the time of the first step and of the others."""

import time

import jax
import jax.numpy as jnp

on_cpu = jax.default_backend() == "cpu"
LAYERS, WIDTH, ROWS = (4, 128, 64) if on_cpu else (24, 4096, 1024)
STEPS = 50


def lose(layers: list[jax.Array], x: jax.Array) -> jax.Array:
    for layer in layers:
        x = jnp.tanh(x @ layer)
    return jnp.mean((x - 1) ** 2).astype(jnp.float32)


@jax.jit
def step(layers: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    loss, slopes = jax.value_and_grad(lose)(layers, x)
    return [layer - 0.01 * slope for layer, slope in zip(layers, slopes, strict=True)], loss


began = time.perf_counter()
keys = jax.random.split(jax.random.key(0), LAYERS)
layers = [jax.random.normal(key, (WIDTH, WIDTH), jnp.bfloat16) * WIDTH**-0.5 for key in keys]
x = jnp.ones((ROWS, WIDTH), jnp.bfloat16)
layers, loss = step(layers, x)
loss.block_until_ready()
first_s = time.perf_counter() - began
for _ in range(5):
    layers, loss = step(layers, x)
loss.block_until_ready()
began = time.perf_counter()
for _ in range(STEPS):
    layers, loss = step(layers, x)
loss.block_until_ready()
step_ms = 1000 * (time.perf_counter() - began) / STEPS
print(f"first {first_s:.2f} s, step {step_ms:.3f} ms, loss {float(loss):.4f}", flush=True)
