//! The calls of both clients that the upstreams saw, as a table.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use super::naive;
use super::score::Score;
use super::upstreams::{PATIENCE, PROFILES};

/// The result of one client.
pub(super) struct Client {
    /// By upstream, in the order of `PROFILES`.
    pub(super) scores: Vec<Score>,
    pub(super) took: Duration,
}

/// The width of one client's columns.
const SIDE: usize = 28;

/// A row per upstream, from its own log, and the totals, for the naive client and for Paceline. `jobs`
/// is the number of jobs that each of them had to do.
pub(super) fn table(first: &Client, second: &Client, jobs: usize) -> String {
    let mut text = String::from("What the upstreams saw, by their own logs:\n\n");
    row(&mut text, ["", ""], ["naive client", "Paceline"]);
    let heads = cells(["calls", "429s", "bans", "answers"]);
    row(&mut text, ["upstream", "allows"], [&heads, &heads]);
    for ((profile, naive), paced) in PROFILES.iter().zip(&first.scores).zip(&second.scores) {
        row(&mut text, [profile.name, profile.allows], [numbers(naive), numbers(paced)]);
    }
    let all = [first, second].map(|client| Score::all(&client.scores));
    row(&mut text, ["all", ""], all.each_ref().map(numbers));
    text.push('\n');
    let broken = all.each_ref().map(|score| score.broken.to_string());
    row(&mut text, ["limits broken", ""], broken);
    let answered = all.each_ref().map(|score| format!("{} of {jobs}", score.answered.len()));
    row(&mut text, ["jobs answered", ""], answered);
    let took = [first, second].map(|client| format!("{:.1}s", client.took.as_secs_f64()));
    row(&mut text, ["time", ""], took);
    let seconds = naive::AT_MOST.as_secs();
    let bounds = format!(
        "\nThe naive client tries a call {} times, waits {PATIENCE} each, and stops after {seconds}s.\n",
        naive::TRIES,
    );
    text + &bounds
}

fn row(text: &mut String, [name, allows]: [&str; 2], [naive, paced]: [impl Display; 2]) {
    // A long name extends into the column of limits.
    let named = format!("{name:9}{allows}");
    writeln!(text, "{named:23}{naive:>SIDE$}{paced:>SIDE$}").expect("a string takes everything");
}

fn numbers(score: &Score) -> String {
    cells([score.calls, score.refused, score.bans, score.answers as u64])
}

fn cells([calls, refused, bans, answers]: [impl Display; 4]) -> String {
    format!("{calls:>7}{refused:>6}{bans:>6}{answers:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clients_stand_side_by_side() {
        let naive = Score {
            calls: 720,
            refused: 640,
            bans: 1,
            broken: 640,
            answers: 25,
            answered: (1..=25).collect(),
            ..Score::default()
        };
        let answered = (1..=80).collect();
        let paced = Score { calls: 80, answers: 80, answered, ..Score::default() };
        let side = |score: &Score| {
            let mut scores = vec![Score::default(); PROFILES.len()];
            scores[2] = score.clone();
            scores
        };
        let naive = Client { scores: side(&naive), took: Duration::from_millis(5_010) };
        let paced = Client { scores: side(&paced), took: Duration::from_millis(16_240) };
        let table = table(&naive, &paced, 84);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 80), "{table}");
        let expected =
            "grumpy   5/s, or bans      720   640     1       25     80     0     0       80";
        assert_eq!(lines[6], expected, "{table}");
        assert_eq!(lines[9].trim_start_matches("all"), &format!("{:20}{}", "", &expected[23..]));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[11]), "limits broken 640 0");
        assert_eq!(words(lines[12]), "jobs answered 25 of 84 80 of 84");
        assert_eq!(words(lines[13]), "time 5.0s 16.2s");
    }
}
