//! How the vocabulary stands in the views, for their description in OpenAPI.

use std::borrow::Cow;

use utoipa::openapi::schema::{AdditionalProperties, OneOfBuilder, Schema, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::host_addr::Prefix;
use crate::identity::{HostName, Incarnation, NetworkName, Run, ServiceId, ServiceName};
use crate::port::{Port, PortName, PortRange, PortRanges, Protocol};
use crate::profile::Profile;
use crate::supervision::Failure;
use crate::time::WallClock;

/// Each type stands for itself wherever it is used: a name for it would say no more than its description.
macro_rules! stands_as {
    ($($name:ident: $form:expr, $what:literal;)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $form.description(Some($what)).into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

stands_as! {
    ServiceName: text(), "a full name, such as web.alice";
    HostName: text(), "a host's name";
    NetworkName: text(), "a network of the site";
    PortName: text(), "what a profile calls a port";
    Prefix: text(), "such as 10.20.0.0/16";
    PortRanges: text(), "such as 20000-32767,40000; empty for none";
    Protocol: text().enum_values(Some(["tcp", "udp", "tcp+udp"])), "the side or sides";
    Port: number(65_535), "a port";
    Incarnation: number(u32::MAX), "a placement";
    Run: number(u32::MAX), "a start";
    ServiceId: ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)), "a service's number, never used again";
    WallClock: ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)), "milliseconds since 1970, UTC";
    Profile: anything(), "the effective profile, as docs/profile.md has it";
    Failure: anything(), "reason, exit, run, at and probe_output";
    PortRange: OneOfBuilder::new()
        .item(number(65_535))
        .item(
            ObjectBuilder::new()
                .property("first", number(65_535))
                .property("last", number(65_535))
                .required("first")
                .required("last"),
        ), "a number, or the first and the last of consecutive ones";
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn number(most: u32) -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    number.minimum(Some(0)).maximum(Some(most))
}

fn anything() -> ObjectBuilder {
    let object = ObjectBuilder::new().schema_type(Type::Object);
    object.additional_properties(Some(AdditionalProperties::FreeForm(true)))
}
