"""Control tasks with a cost: Gymnasium's CartPole under noise, action flips, wind and other physics."""
