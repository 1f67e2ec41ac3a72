// SPDX-License-Identifier: GPL-2.0-only

//! Patterns with `*` and `?`.

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::{Chars, FromStr};

/// A pattern for a whole text: `*` stands for any characters, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<char>);

impl Pattern {
    /// Whether the text matches. The time is bounded by the product of both lengths, whatever they
    /// are: a text may be hostile.
    pub fn matches(&self, text: &str) -> bool {
        let (mut at, mut rest) = (0, text.chars());
        // The last star, and the text from where what follows it was tried last.
        let mut star: Option<(usize, Chars)> = None;
        loop {
            let from = rest.clone();
            let Some(next) = rest.next() else { break };
            match self.0.get(at) {
                Some('*') => {
                    star = Some((at, from.clone()));
                    (at, rest) = (at + 1, from);
                }
                Some(c) if *c == '?' || *c == next => at += 1,
                _ => match &mut star {
                    Some((star_at, tried)) => {
                        tried.next();
                        (at, rest) = (*star_at + 1, tried.clone());
                    }
                    None => return false,
                },
            }
        }
        self.0[at..].iter().all(|c| *c == '*')
    }

    /// Whether the pattern is about a path.
    pub fn has_slash(&self) -> bool {
        self.0.contains(&'/')
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("an empty text matches nothing: leave the condition out".into());
        }
        Ok(Pattern(text.chars().collect()))
    }
}

/// One value or a list of them, each parsed from a text.
pub struct OneOf<T>(pub Vec<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOfVisitor(PhantomData)).map(OneOf)
    }
}

struct OneOfVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for OneOfVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        text.parse().map(|one| vec![one]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            all.push(text.parse().map_err(de::Error::custom)?);
        }
        if all.is_empty() {
            return Err(de::Error::custom("an empty list matches nothing: leave it out"));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        let matches = |pattern: &str, text| pattern.parse::<Pattern>().unwrap().matches(text);
        for (pattern, text) in [
            ("steam", "steam"),
            ("steam*", "steam"),
            ("*.exe", "Game.exe"),
            ("w?ne*-preloader", "wine64-preloader"),
            ("*a*b*", "xxaxxbxx"),
            ("*aab", "aaaab"),
            ("*", ""),
            ("gr??e", "grüße"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("steam", "steamx"), ("steam", "xsteam"), ("?", ""), ("*.exe", "exe"), ("a*b", "ac")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!("".parse::<Pattern>().is_err());
    }

    /// Backtracking into every star would take longer than the universe is old.
    #[test]
    fn a_hostile_text_ends_soon() {
        let pattern: Pattern = format!("{}b", "*a".repeat(40)).parse().unwrap();
        assert!(!pattern.matches(&"a".repeat(4_000)));
    }
}
