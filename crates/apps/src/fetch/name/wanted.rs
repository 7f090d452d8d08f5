//! The names that items of a list have taken.

use sha2::{Digest, Sha256};

use super::distinct;

/// The filters: their bits as a power of two, and the names after which the next filter begins. A
/// short list stays in the caches, one of two million takes 18 MiB, and the longest 146 MiB.
const TIERS: [(u32, usize); 4] = [(20, 16_384), (24, 262_144), (27, 2_097_152), (30, usize::MAX)];

/// Bits per name.
const PROBES: u64 = 8;

/// The names that are taken, in bounded memory.
///
/// A Bloom filter never forgets a name, but may report a new one as taken: about once in ten lists
/// of a million names. That costs a longer name and nothing else: on `Again` the caller adds a hash
/// of the URL.
pub struct Wanted {
    filters: Vec<Filter>,
    /// Whether any folder is taken.
    folders: bool,
}

struct Filter {
    bits: Vec<u64>,
    bits_log2: u32,
    names: usize,
}

/// The kind of file that has a name in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    /// A folder.
    Folder,
    /// A file, or any other kind that is not a folder.
    File,
}

/// Whether an earlier item took the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// No: it is marked now.
    First,
    /// Yes, or a false positive of the filter.
    Again,
}

impl Wanted {
    /// No name is taken.
    pub fn new() -> Wanted {
        Wanted { filters: vec![Filter::new(TIERS[0].0)], folders: false }
    }

    /// Marks the path, and returns whether it was marked before. Case is ignored, as on the file
    /// systems of macOS and Windows.
    pub fn take(&mut self, path: &str) -> Taken {
        let hash = hash(path);
        if self.knows(hash) {
            return Taken::Again;
        }
        let newest = self.filters.len() - 1;
        if self.filters[newest].names >= TIERS[newest].1 {
            self.filters.push(Filter::new(TIERS[newest + 1].0));
        }
        self.filters.last_mut().expect("there is one from the start").mark(hash);
        Taken::First
    }

    /// Changes a path so that no folder in it has the name of a file, and the file not that of a
    /// folder, among names that are taken and files that exist. Marks the folders, but not yet the
    /// file.
    pub fn among_folders(
        &mut self,
        parts: &[String],
        there: impl Fn(&str) -> Option<There>,
    ) -> Vec<String> {
        let Some((file, folders)) = parts.split_last() else { return Vec::new() };
        let mut path = Vec::with_capacity(parts.len());
        for folder in folders {
            path.push(folder.clone());
            let text = path.join("/");
            let is_folder = self.folders && self.knows(hash(&format!("{text}/")));
            if !is_folder && (self.knows(hash(&text)) || there(&text) == Some(There::File)) {
                path.pop();
                path.push(distinct(folder, &text));
            }
            self.folders = true;
            self.take(&format!("{}/", path.join("/")));
        }
        path.push(file.clone());
        let text = path.join("/");
        let is_folder =
            || self.knows(hash(&format!("{text}/"))) || there(&text) == Some(There::Folder);
        if self.folders && is_folder() {
            path.pop();
            path.push(distinct(file, &text));
        }
        path
    }

    fn knows(&self, hash: u128) -> bool {
        self.filters.iter().any(|filter| filter.has(hash))
    }
}

impl Filter {
    fn new(bits_log2: u32) -> Filter {
        Filter { bits: vec![0; 1 << (bits_log2 - 6)], bits_log2, names: 0 }
    }

    /// The bits of a name: from the first half of its hash, in steps of the second.
    fn places(bits_log2: u32, hash: u128) -> impl Iterator<Item = usize> {
        let (first, step) = (hash as u64, (hash >> 64) as u64);
        let place = move |n| first.wrapping_add(step.wrapping_mul(n)) >> (64 - bits_log2);
        (0..PROBES).map(move |n| place(n) as usize)
    }

    fn has(&self, hash: u128) -> bool {
        Filter::places(self.bits_log2, hash).all(|bit| self.bits[bit >> 6] & (1 << (bit & 63)) != 0)
    }

    fn mark(&mut self, hash: u128) {
        self.names += 1;
        for bit in Filter::places(self.bits_log2, hash) {
            self.bits[bit >> 6] |= 1 << (bit & 63);
        }
    }
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted::new()
    }
}

/// A hash without a random seed, so that a resumed run gives the same names to the same list. It is
/// cryptographic, so that no server can choose names that collide.
fn hash(path: &str) -> u128 {
    let digest = Sha256::digest(path.to_lowercase());
    u128::from_le_bytes(*digest.first_chunk().expect("a SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(paths: &[&str], expected: &[Taken]) {
        let mut wanted = Wanted::new();
        let found: Vec<Taken> = paths.iter().map(|path| wanted.take(path)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_second_item_with_a_name_is_noticed() {
        use Taken::{Again, First};
        check(&["a/x", "a/y", "a/x", "b/x", ""], &[First, First, Again, First, First]);
        check(&["a/Größe.ISO", "A/GRÖSSE.iso", "a/gröẞe.iso"], &[First, First, Again]);
    }

    #[test]
    fn a_file_and_a_folder_do_not_get_one_name() {
        let mut wanted = Wanted::new();
        let mut place = |path: &str| {
            let parts: Vec<String> = path.split('/').map(str::to_string).collect();
            let there = |path: &str| match path {
                "old" => Some(There::File),
                "h/more" => Some(There::Folder),
                _ => None,
            };
            let path = wanted.among_folders(&parts, there).join("/");
            assert_eq!(wanted.take(&path), Taken::First, "{path}");
            path
        };
        assert_eq!(place("h/docs"), "h/docs");
        let moved = place("h/docs/intro");
        let (folder, _) = moved.split_once("/intro").expect("only the folder has moved");
        assert!(folder.starts_with("h/docs-"), "{moved}");
        assert_eq!(place("h/docs/more"), format!("{folder}/more"));
        assert_eq!(place("h/news/today"), "h/news/today");
        assert!(place("h/news").starts_with("h/news-"));
        assert!(place("old/one").starts_with("old-"));
        assert!(place("h/more").starts_with("h/more-"));
    }

    #[test]
    fn the_places_of_a_name_never_change() {
        let places: Vec<_> = Filter::places(27, hash("example.org/a.iso")).collect();
        assert_eq!(places[..3], [120_813_421, 71_152_050, 21_490_679]);
    }

    #[test]
    fn a_million_names_are_all_known_and_hardly_any_is_taken_for_another() {
        let mut wanted = Wanted::new();
        let name = |n: u32| format!("example.org/{n}.iso");
        let mistaken = (0..1_000_000).filter(|&n| wanted.take(&name(n)) == Taken::Again).count();
        assert_eq!(mistaken, 0, "of a million");
        assert!((0..1_000_000).all(|n| wanted.take(&name(n)) == Taken::Again));
        let fresh = 1_000_000..1_100_000;
        let mistaken = fresh.filter(|&n| wanted.take(&name(n)) == Taken::Again).count();
        assert_eq!(mistaken, 0, "of a hundred thousand");
    }
}
