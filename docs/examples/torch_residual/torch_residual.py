"""Dynamics with a learned residual in PyTorch (pip install torch): backend = "torch_residual" in a configuration.

xdot = f(x, u) + (0, network(x, u)),    f by the closed form of the robot, the network's derivatives by reverse mode
"""

import numpy as np
import torch

import trajopt as to


def network(nx, nu, nv, width=32):
    """A network of double precision from (x, u) to accelerations (nv)."""
    layers = torch.nn.Linear(nx + nu, width), torch.nn.Tanh(), torch.nn.Linear(width, nv)
    return torch.nn.Sequential(*layers).double()


class TorchResidual:
    """A system with the accelerations of a network added; weights: file of its state_dict, random ones without it."""

    def __init__(self, system, weights=None, seed=0):
        if not system.manifold.is_vector_space:
            raise ValueError("the backend torch_residual needs a state without quaternions: a fixed base")
        self.known = to.make_backend(system, "analytic")
        self.nx, self.nu = system.manifold.nx, system.nu
        torch.manual_seed(seed)
        self.network = network(self.nx, self.nu, self.nx // 2)
        if weights is not None:
            self.network.load_state_dict(torch.load(weights, weights_only=True))
        self.derivative = torch.func.vmap(torch.func.jacrev(self.network))

    def f(self, x, u, t, p):
        """The time derivative (N, nx) of the state."""
        xdot = self.known.f(x, u, t, p)
        with torch.no_grad():
            xdot[:, self.nx // 2 :] += self.network(self._joined(x, u)).numpy()
        return xdot

    def jacobians(self, x, u, t, p):
        """xdot (N, nx), fx (N, nx, nx), fu (N, nx, nu)."""
        _, fx, fu = self.known.jacobians(x, u, t, p)
        slope = self.derivative(self._joined(x, u)).detach().numpy()
        fx, fu, half = np.array(fx), np.array(fu), self.nx // 2
        fx[:, half:] += slope[:, :, : self.nx]
        fu[:, half:] += slope[:, :, self.nx :]
        return self.f(x, u, t, p), fx, fu

    def _joined(self, x, u):
        return torch.from_numpy(np.hstack([x, u]))
