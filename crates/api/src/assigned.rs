//! What the rules of a host read of an assignment as it is written down.

use std::net::IpAddr;

use portreeve::registry::Desired;
use portreeve::residency::Assigned;

use crate::local::{Assignment, Tokens};

impl Assigned for Assignment {
    type Order = Desired;
    type Tokens = Tokens;

    fn order(&self) -> &Desired {
        &self.desired
    }

    fn order_mut(&mut self) -> &mut Desired {
        &mut self.desired
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn set_tokens(&mut self, tokens: Tokens) {
        self.tokens = tokens;
    }

    fn host_address(&self) -> IpAddr {
        self.host_address
    }
}
