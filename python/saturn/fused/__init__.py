"""Several tasks that adapt one frozen base train together, each as if it were alone.

This is the worker's side of fused training. No plan chooses it yet, and no run reaches it: it is
used by its tests, by `benches/fused`, and by what will be built on it (see `docs/fused.md`).

* `turns`: each member's code runs on a thread of its own, one thread at a time, and waits where
  members meet;
* `stream`: the random numbers of a member, while others run;
* `packed`: the rows of several members as one batch, and the call that computes on them;
* `parts`: what a layer's modules compute in such a call: frozen weights for all rows at once,
  everything else for each member's rows apart;
* `base`: what tasks must have in common, and the weights that they share;
* `refusal`: why tasks can't be fused;
* `layers`: the layers of a member's model, where members meet;
* `group`: the members, and the technique under which a member's own `Stepper` trains;
* `check`: whether a group's first steps are those of the same tasks alone.
"""
