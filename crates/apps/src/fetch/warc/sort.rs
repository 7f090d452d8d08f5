//! Sorting of more lines than fit in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::ops::Range;
use std::path::PathBuf;

use super::files::anew;
use super::lines::{Line, next_line};

/// Bytes of lines that are sorted in memory.
pub(super) const IN_MEMORY: usize = 64 << 20;

/// Sorted files that are open at a time.
const MERGED_AT_ONCE: usize = 64;

/// Sorts lines by their bytes, and removes duplicates.
pub(super) struct Sorter {
    scratch: PathBuf,
    limit: usize,
    text: Vec<u8>,
    lines: Vec<Range<usize>>,
    /// Sorted files. Their names are already removed, so that no crash leaves one behind.
    runs: Vec<File>,
}

impl Sorter {
    /// Keeps `limit` bytes in memory, and writes the rest to files at `scratch`.
    pub(super) fn new(scratch: PathBuf, limit: usize) -> Sorter {
        Sorter { scratch, limit, text: Vec::new(), lines: Vec::new(), runs: Vec::new() }
    }

    /// Adds a line, without its end.
    pub(super) fn push(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.text.is_empty() && self.text.len() + line.len() > self.limit {
            self.spill()?;
        }
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.lines.push(start..self.text.len());
        Ok(())
    }

    /// Writes all lines.
    pub(super) fn write_to(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.runs.is_empty() {
            return self.drain_to(out);
        }
        self.spill()?;
        merge(self.runs, out)
    }

    fn drain_to(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let text = &self.text;
        self.lines.sort_unstable_by(|a, b| text[a.clone()].cmp(&text[b.clone()]));
        self.lines.dedup_by(|a, b| text[a.clone()] == text[b.clone()]);
        for line in self.lines.drain(..) {
            out.write_all(&text[line])?;
            out.write_all(b"\n")?;
        }
        self.text.clear();
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.runs.len() == MERGED_AT_ONCE {
            let mut out = BufWriter::new(self.scratch_file()?);
            merge(std::mem::take(&mut self.runs), &mut out)?;
            self.runs.push(out.into_inner()?);
        }
        let mut out = BufWriter::new(self.scratch_file()?);
        self.drain_to(&mut out)?;
        self.runs.push(out.into_inner()?);
        Ok(())
    }

    fn scratch_file(&self) -> io::Result<File> {
        let file = anew(&self.scratch)?;
        std::fs::remove_file(&self.scratch)?;
        Ok(file)
    }
}

fn merge(runs: Vec<File>, out: &mut dyn Write) -> io::Result<()> {
    let mut readers = Vec::new();
    let mut heads = BinaryHeap::new();
    for mut run in runs {
        run.rewind()?;
        let mut reader = BufReader::new(run);
        let mut line = Vec::new();
        if next_line(&mut reader, &mut line)? == Line::Whole {
            heads.push(Reverse((line, readers.len())));
        }
        readers.push(reader);
    }
    let mut last: Option<Vec<u8>> = None;
    while let Some(Reverse((line, from))) = heads.pop() {
        if last.as_ref() != Some(&line) {
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
        let mut next = last.replace(line).unwrap_or_default();
        if next_line(&mut readers[from], &mut next)? == Line::Whole {
            heads.push(Reverse((next, from)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn check(lines: &[Vec<u8>], limit: usize) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut sorter = Sorter::new(directory.path().join("scratch"), limit);
        for line in lines {
            sorter.push(line).expect("room");
        }
        let mut sorted = Vec::new();
        sorter.write_to(&mut sorted).expect("room");
        let expected: BTreeSet<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let expected: Vec<u8> = expected.iter().flat_map(|line| [*line, b"\n"].concat()).collect();
        assert_eq!(sorted, expected);
        let left = std::fs::read_dir(directory.path()).expect("the directory").count();
        assert_eq!(left, 0, "scratch files left behind");
    }

    #[test]
    fn lines_come_back_in_order_and_once_however_little_fits() {
        let lines: Vec<Vec<u8>> = (0..500_u32)
            .map(|n| format!("{:x}", n.wrapping_mul(2_654_435_761) % 400).into())
            .collect();
        for limit in [1, 2, 10, 100, 1_000, IN_MEMORY] {
            check(&lines, limit);
        }
        check(&[], 1);
    }

    #[test]
    fn a_line_comes_before_one_that_goes_on() {
        check(&[b"a b".to_vec(), b"a".to_vec(), b"a\tb".to_vec(), b"".to_vec()], 2);
    }
}
