//! What a shell sees of endpoints as they change. What only a controller in trouble does is played by a script.

mod commands;
mod files;
mod lines;
mod scripted;
mod together;
mod waits;
