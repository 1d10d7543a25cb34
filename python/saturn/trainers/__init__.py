"""A trainer as a task: what a `transformers.Trainer`, or one of TRL's, would train, and how.

`building` makes one without its side effects; `refusals` says what of it Saturn can't train as it
would; `reading` reads what it would do; `source` is what travels to the ranks in its place: model,
batches and losses of a trainer that each rank makes for itself.

Beside them are the files `lightning*`, which do the same for a LightningModule. They share with the
others only how an optimizer is read.

The trainer's own loop never runs. What it draws, counts and sums is done in the same order, so that
on one device its weights come out to the last bit.
"""
