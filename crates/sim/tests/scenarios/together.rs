//! All limits of a lane at once: the worked trace of `docs/limits.md`.

use std::num::NonZeroU32;

use paceline_core::{GAP_SHARE, GroupLimits, Limits, Portion, Priority, Span, Window};
use paceline_sim::*;

/// The lanes that the document configures.
fn shop() -> World {
    let two = NonZeroU32::new(2).expect("above zero");
    let mut window = Window::new("5/20s".parse().expect("a rate"));
    window.keep[Priority::Interactive.index()] = Portion::thousandths(400);
    let group = Some("shop".to_string());
    let books = Limits {
        every: Some(Span::secs(2)),
        gap_share: GAP_SHARE,
        windows: vec![window],
        in_flight: two,
        slack: Some(Span::millis(100)),
        group: group.clone(),
        fail_after: two,
        ..Limits::default()
    };
    let covers = Limits { group, ..Limits::default() };
    let shop = GroupLimits { every: Some(Span::millis(500)), ..GroupLimits::default() };
    World::new().lane("books", books).lane("covers", covers).group("shop", shop)
}

/// The blocks of the document that are marked as a trace.
fn told() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let blocks = text.split("```trace\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("it has an end")).collect()
}

#[test]
fn the_trace_in_the_document_is_the_engines_own() {
    let mut world = shop();
    for n in 1..=5 {
        world.submit(job(n).on("books"));
    }
    world.submit(job(6).on("covers"));
    world.answer(4, throttled("10s"));
    world.answer(5, throttled_without_a_date());
    world.run_for("7s");
    assert_eq!(world.why(4), ["books: keep until 20.100, 0 ahead"]);
    for n in 7..=8 {
        world.submit(job(n).on("books").as_(Priority::Interactive));
    }
    world.submit(job(9).on("books").as_(Priority::Rss));
    world.run_for("30s");
    for n in 10..=12 {
        world.submit(job(n).on("books").attempts(1));
    }
    world.answer(10, failed("status_500"));
    world.answer(11, failed("status_500"));
    let trace = world.run_for("100s");
    let shown = |line: &&str| !line.contains(" done #") && !line.contains(" report #");
    let lines: Vec<&str> = trace.lines().filter(shown).collect();
    assert_eq!(lines.join("\n"), told().trim_end());
}
