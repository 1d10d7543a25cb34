//! The views of scripted runs and plans, by snapshot.

#[cfg(test)]
mod console;
#[cfg(test)]
mod scripted;
