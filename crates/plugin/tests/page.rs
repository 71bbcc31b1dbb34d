//! The C of docs/abi.md: it compiles without a warning, and does what the page says.

mod built;

use std::process::Command;

use built::{compiler, root, run, shared_object, temporary};

#[test]
fn the_blocks_of_the_page_are_one_program_that_runs() {
    let folder = temporary().join("page");
    std::fs::create_dir_all(&folder).expect("the folder of the target is ours");
    let page = std::fs::read_to_string(root().join("docs/abi.md")).expect("the page is there");
    let blocks: Vec<_> = page.split("\n```c\n").skip(1).collect();
    assert!(blocks.len() > 10, "the blocks are not found");
    let blocks = blocks
        .iter()
        .filter_map(|rest| rest.split("\n```\n").next());
    let source = blocks.collect::<Vec<_>>().join("\n\n");
    std::fs::write(folder.join("page.c"), source).expect("the folder of the target is ours");
    let program = folder.join("page");
    run(compiler()
        .arg("-I")
        .arg(&folder)
        .arg(root().join("crates/plugin/tests/page/main.c"))
        .args(["-ldl", "-o"])
        .arg(&program));
    let said = run(Command::new(program).arg(shared_object()));
    assert_eq!(said, "web.alice 10.0.0.1:20004\n1 hosts: HOST DRAINED\n");
}
