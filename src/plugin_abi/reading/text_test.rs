//! The names behind numbers.

use std::ffi::c_char;

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;

impl Caller {
    fn text(&self, kind: u32, number: u32, cap: u32) -> Result<String, (i32, u32)> {
        let (mut buffer, mut need) = (vec![0x55_u8; cap as usize], 0);
        let at = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: a live buffer of the length said, and a live local.
        let code = unsafe { (self.api.text)(self.ctx, kind, number, at, cap, &raw mut need) };
        if code != PR_OK {
            assert!(buffer.iter().all(|byte| *byte == 0x55), "it was written");
            return Err((code, need));
        }
        assert_eq!(buffer[need as usize - 1], 0);
        buffer.truncate(need as usize - 1);
        Ok(String::from_utf8(buffer).unwrap())
    }
}

#[test]
fn every_number_of_an_endpoint_has_its_name() {
    let caller = Caller::new();
    caller.profile("db.bob", &[any("sql")]);
    let web = caller.profile("web.alice", &[any("sql"), any("http")]);
    let (id, _) = caller.hold(want(1, 0, web, 1));
    assert_eq!(caller.address(1, 1, 2), PR_OK);
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    let (endpoints, _) = caller.resolve("web.alice", 0).unwrap();
    let name = |kind, number| caller.text(kind, number, 64).unwrap();
    let named: Vec<_> = endpoints
        .iter()
        .map(|it| {
            let [service, port, host] = [
                (PR_TEXT_SERVICE, it.service),
                (PR_TEXT_PORT, it.name),
                (PR_TEXT_HOST, it.host),
            ]
            .map(|(kind, number)| name(kind, number));
            format!("{service} {port} {host}")
        })
        .collect();
    assert_eq!(named, ["web.alice sql n2", "web.alice http n2"]);
}

#[test]
fn a_name_is_written_whole_or_not_at_all() {
    let caller = Caller::new();
    assert_eq!(caller.text(PR_TEXT_HOST, 0, 3), Ok("n1".to_owned()));
    assert_eq!(caller.text(PR_TEXT_HOST, 0, 2), Err((PR_ENOSPC, 3)));
    assert_eq!(caller.text(PR_TEXT_HOST, 0, 0), Err((PR_ENOSPC, 3)));
    for kind in [PR_TEXT_SERVICE, PR_TEXT_PORT, PR_TEXT_HOST] {
        for number in [2, PR_ANY - 1, PR_ANY] {
            assert_eq!(caller.text(kind, number, 64), Err((PR_ENOENT, 0)));
        }
    }
    for kind in [0, 4, PR_ANY] {
        assert_eq!(caller.text(kind, 0, 64), Err((PR_EINVAL, 0)));
    }
}

#[test]
fn the_name_at_an_index_is_of_who_stands_there_now() {
    let caller = Caller::new();
    assert_eq!(caller.put(&[host(1, "n1"), host(0, "n2")]), PR_OK);
    assert_eq!(caller.text(PR_TEXT_HOST, 0, 64), Ok("n2".to_owned()));
    // SAFETY: no pointer is passed.
    let code = unsafe { (caller.api.host_remove)(caller.ctx, 0, 0) };
    assert_eq!(code, PR_OK);
    assert_eq!(caller.text(PR_TEXT_HOST, 0, 64), Err((PR_ENOENT, 0)));
}
