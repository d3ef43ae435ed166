# %% [markdown]
# # A network of your own
#
# A network has a body and a head. The body is any `torch.nn.Module` with an `out_features`; the heads, for actions and for each cost, are made to fit.

# %%
import torch

import rcac


@rcac.register_network("residual")
class Residual(torch.nn.Module):
    def __init__(self, space):  # the space of what it will be given
        super().__init__()
        self.out_features = 32
        self.first = torch.nn.Linear(space.shape[0], 32)
        self.second = torch.nn.Linear(32, 32)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return x + torch.tanh(self.second(x))


# %% [markdown]
# Registered, it has a name, on the command line too (`algo.network=residual`), and saved policies remember it. `actor=Residual` does without a name.

# %%
result = rcac.train(
    "rcac/NoisyCartPole-v0", network="residual", total_steps=20_000, num_envs=16, seed=0, progress=False
)
result

# %% [markdown]
# Before a training begins the body is tried. What depends on the rest of a batch or on chance (batch normalisation, active dropout) is refused,
# with the reason:


# %%
class Chancy(Residual):
    def forward(self, x):
        return torch.nn.functional.dropout(super().forward(x), 0.5, training=True)


try:
    rcac.train("rcac/NoisyCartPole-v0", actor=Chancy, total_steps=1000, progress=False)
except rcac.InputError as error:
    print(error)

# %% [markdown]
# ## Use it elsewhere
#
# `result.policy.export("policy.pt")` writes TorchScript, and `policy.onnx` ONNX (with the extra `onnx`): both run without this package.
