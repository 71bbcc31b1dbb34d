//! Hosts in C that try each rule of the table, and the same under tools that see every wrong access. What a test
//! tries is in `c/`; one program has them all.

mod built;
mod tools;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use built::{compiler, root, run, shared_object, temporary};
use tools::is_there;

/// The program of all cases.
static CASES: LazyLock<PathBuf> = LazyLock::new(|| build("cases", &["-O1"], &["-ldl"]));

/// Compiles `c/` into one program.
fn build(name: &str, with: &[&str], and: &[&str]) -> PathBuf {
    let program = temporary().join(name);
    let folder = root().join("crates/plugin/tests/c");
    let mut sources: Vec<_> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "c"))
        .collect();
    sources.sort();
    run(compiler()
        .args(with)
        .args(sources)
        .args(and)
        .args(["-lpthread", "-o"])
        .arg(&program));
    program
}

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[test] fn $name() {
            run(Command::new(&*CASES).arg(shared_object()).arg(stringify!($name)));
        })*

        /// The names above are those that the program has: none is forgotten here.
        #[test]
        fn every_case_of_the_program_is_a_test_here() {
            let listed = run(Command::new(&*CASES).arg(shared_object()).arg("-l"));
            let of_program: BTreeSet<_> = listed.lines().collect();
            assert_eq!(of_program, BTreeSet::from([$(stringify!($name)),*]));
        }
    };
}

cases! {
    the_table_is_for_those_who_speak_our_number,
    a_malformed_greeting_is_refused,
    a_newer_greeting_is_understood_if_its_tail_says_nothing,
    the_table_is_one_for_every_thread,
    every_number_has_words,
    each_call_succeeds_with_its_arguments,
    null_is_refused_for_each_pointer,
    null_where_it_may_be,
    a_misaligned_pointer_is_refused,
    an_unknown_flag_is_refused_in_each_call,
    an_unknown_flag_is_refused_in_each_struct,
    a_count_too_large_is_refused_before_anything_is_read,
    a_huge_cap_is_no_reason_to_write_more,
    a_buffer_too_small_says_what_it_needs,
    a_size_that_cannot_be_is_refused,
    longer_structs_are_read_if_their_tail_is_zero,
    a_strided_array_is_walked_by_its_own_size,
    ports_are_as_long_as_their_profile_says,
    stats_are_filled_as_far_as_both_know_them,
    room_for_an_effect_is_checked_before_there_is_one,
    what_a_struct_points_to_is_checked_as_its_arguments_are,
    an_id_that_is_not_is_never_followed,
    an_id_of_another_context_is_stale,
    a_stale_id_in_a_batch_stops_nobody_else,
    every_call_after_destroy_is_stale,
    nothing_ends_twice,
    an_old_id_never_means_a_new_grant,
    an_old_id_never_means_a_new_context_snapshot_or_watch,
    so_many_contexts_and_no_more,
    a_fixed_number_is_refused_for_its_own_reason,
    fixed_numbers_at_their_ends,
    room_that_is_one_too_small_takes_nothing,
    a_gang_of_which_one_fails_takes_nothing,
    hosts_without_number_cost_little_until_they_are_used,
    a_host_can_be_full_to_its_last_number,
    words_of_hosts_may_be_more_or_fewer_than_there_are_hosts,
    an_index_beyond_the_last_host_is_nobody,
    hosts_change_places_with_their_holders,
    control_is_busy_while_a_transaction_is_open,
    broken_utf8_is_refused_everywhere,
    every_byte_is_taken_or_refused,
    lengths_are_believed_only_as_far_as_a_name_goes,
    a_listener_may_have_any_name,
    an_address_that_is_none_is_refused,
    a_number_beyond_its_list_is_refused,
    every_call_runs_on_a_small_stack,
    threads_release_what_a_cycle_gives,
    a_second_thread_in_a_hot_call_is_told_that_it_is_busy,
    a_context_may_end_under_those_who_call_it,
    each_thread_has_its_own_last_error,
    every_call_tells_a_child_that_it_is_one,
    a_child_begins_anew_and_its_parent_goes_on,
    a_child_is_not_held_up_by_what_other_threads_held,
    any_calls_in_any_order_do_no_harm,
    a_watch_has_a_descriptor_from_open_to_close,
    the_end_of_a_context_is_readable_and_closes_all,
    without_a_free_descriptor_nothing_is_made,
    a_child_neither_writes_nor_reads_its_parents_descriptors,
    who_sleeps_at_a_descriptor_is_woken,
    no_watch_or_snapshot_is_named_again,
    a_snapshot_is_read_from_anywhere,
    snapshots_end_at_their_number_and_leave_nothing,
    a_watch_is_read_one_by_one_and_from_any_revision,
    an_old_watch_or_snapshot_is_never_a_new_one,
    a_cursor_of_nobodys_making_is_refused_or_ends,
    what_stays_is_exported_once_whatever_happens_between_pieces,
    one_of_those_who_close_does,
    a_machine_takes_any_event_at_any_time,
    a_damaged_state_is_refused_or_works,
    a_profile_of_any_kind_is_refused_in_words,
    so_many_machines_and_no_more,
    each_size_is_taken_or_refused,
    arguments_may_lie_over_each_other,
    candidates_over_the_answer,
    the_last_moment_is_one_like_others,
    one_of_everything_is_enough,
    a_maximum_at_its_bound_is_made_or_there_is_no_memory,
    so_many_ranges_and_no_more,
    networks_at_their_ends,
    records_are_believed_one_by_one,
    a_gang_of_the_same_takes_nothing,
    two_plugins_in_one_process_know_nothing_of_each_other,
    a_plugin_that_is_closed_goes_on,
    a_name_space_of_its_own_has_a_plugin_of_its_own,
    a_log_may_call_back,
    a_log_may_end_its_context,
    a_handler_that_calls_in_is_busy_or_served,
    a_crowd_may_call_anything,
    the_ledger_agrees_with_the_context,
}

#[test]
#[ignore = "make external: under valgrind"]
fn under_valgrind() {
    if !is_there("valgrind") {
        return;
    }
    let names = run(Command::new(&*CASES).arg(shared_object()).arg("-l"));
    let names: Vec<_> = names.lines().collect();
    // Valgrind uses one core, so two of them share the tests; every other one, as neighbours cost alike.
    let under = |first: usize| {
        run(Command::new("valgrind")
            .args([
                "-q",
                "--error-exitcode=9",
                "--leak-check=full",
                "--errors-for-leak-kinds=definite",
            ])
            .arg(&*CASES)
            .arg(shared_object())
            .arg("-s")
            .args(names.iter().skip(first).step_by(2)))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| under(0));
        under(1);
    });
}

/// A host under the address and undefined-behaviour sanitizers.
fn sanitized(name: &str, with: &[&str], and: &[&Path]) {
    let libraries: Vec<_> = and.iter().filter_map(|path| path.to_str()).collect();
    let mut flags = vec![
        "-O0",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-DSANITIZED",
    ];
    flags.extend(with);
    let program = build(name, &flags, &[&libraries[..], &["-ldl", "-lm"]].concat());
    run(Command::new(program).arg(shared_object()).arg("-s"));
}

#[test]
#[ignore = "make external: under sanitizers"]
fn under_sanitizers_with_the_shared_object() {
    sanitized("cases_sanitized", &[], &[]);
}

#[test]
#[ignore = "make external: under sanitizers"]
fn under_sanitizers_with_the_static_library() {
    let library = built::PLUGIN.join("libportreeve_plugin.a");
    sanitized("cases_sanitized_static", &["-DLINKED"], &[&library]);
}
