"""How the learner of each family is built: a module named after it, with `build(config, settings, modules) -> Built`."""
