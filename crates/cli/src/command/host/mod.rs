//! `host`: one host, and what those who run it order about it.

mod drain;
mod orders;
mod show;

use clap::{Args, Subcommand};
use portreeve::identity::HostName;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::output::Format;

/// Show one host, or take it out of service and back.
///
/// `portreeve host NAME` shows it, as `portreeve host show NAME` does, which is the way for a host that is called like
/// an order. The orders are for admins: root and the controller's account.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Host {
    #[command(subcommand)]
    order: Option<Order>,
    /// The host
    #[arg(required = true)]
    name: Option<HostName>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What each is for is told where it lives.
#[derive(Debug, Subcommand)]
enum Order {
    Show(show::Show),
    Drain(drain::Drain),
    Undrain(orders::Undrain),
    Down(orders::Down),
    Remove(orders::Remove),
    Adopt(orders::Adopt),
    Fence(orders::Fence),
}

impl Host {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        match (self.order, self.name) {
            (Some(Order::Show(show)), _) => show.run(connect).await,
            (Some(Order::Drain(drain)), _) => drain.run(connect).await,
            (Some(Order::Undrain(undrain)), _) => undrain.run(connect).await,
            (Some(Order::Down(down)), _) => down.run(connect).await,
            (Some(Order::Remove(remove)), _) => remove.run(connect).await,
            (Some(Order::Adopt(adopt)), _) => adopt.run(connect).await,
            (Some(Order::Fence(fence)), _) => fence.run(connect).await,
            (None, Some(name)) => {
                let output = self.output;
                show::Show { name, output }.run(connect).await
            }
            (None, None) => Err(Failure::new(Code::Usage, "name a host")),
        }
    }
}
