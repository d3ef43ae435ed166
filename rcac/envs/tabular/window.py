"""A window that shows one frame after another, for `render_mode="human"`."""

from typing import Any

import gymnasium as gym
import numpy as np


class Window:
    """Opens with the first frame; `frames_per_second` is how fast frames follow each other at most."""

    def __init__(self, title: str, frames_per_second: float) -> None:
        try:
            import pygame
        except ImportError as error:
            raise gym.error.DependencyNotInstalled(
                "render_mode 'human': pygame is not installed, pip install 'rcac[video]' expected"
            ) from error
        self._pygame, self._rate = pygame, frames_per_second
        self._title = title
        self._screen: Any = None
        self._clock = pygame.time.Clock()

    def show(self, frame: np.ndarray) -> None:
        """Draw a picture, uint8 (H, W, 3)."""
        height, width, _ = frame.shape
        if self._screen is None or self._screen.get_size() != (width, height):
            self._pygame.display.init()
            self._screen = self._pygame.display.set_mode((width, height))
            self._pygame.display.set_caption(self._title)
        self._screen.blit(self._pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        self._pygame.event.pump()  # or the system takes the window for one that hangs
        self._pygame.display.flip()
        self._clock.tick(self._rate)

    def close(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
