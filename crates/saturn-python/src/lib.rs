//! Part of Saturn; not yet filled.
