"""A trainer as a task: train what a `transformers.Trainer`, or one of TRL's, would train.

`building` makes a trainer without its side effects. `refusals` says which trainers Saturn can't
train exactly. `reading` reads what the trainer would do. `source` travels to the ranks in its
place, with model, batches and losses of a trainer that each rank makes for itself.

The modules `lightning*` do the same for a LightningModule. They share with the others only how an
optimizer is read.

The trainer's own loop never runs. Its random draws, counts and sums are made in the same order, so
that on one device the weights are equal to the last bit.
"""
