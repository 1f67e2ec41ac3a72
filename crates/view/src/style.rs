// SPDX-License-Identifier: GPL-2.0-only

//! Colours, or none.

use crate::changes::Weight;
use ratatui::style::{Color, Modifier, Style};
use std::ffi::OsStr;

/// The styles of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    coloured: bool,
}

impl Palette {
    /// Colours, unless `no_color`, the variable `NO_COLOR`, is set to any text (no-color.org).
    pub fn of(no_color: Option<&OsStr>) -> Palette {
        Palette { coloured: no_color.is_none_or(OsStr::is_empty) }
    }

    /// No colours.
    pub fn plain() -> Palette {
        Palette { coloured: false }
    }

    fn colour(self, colour: Color) -> Style {
        if self.coloured { Style::new().fg(colour) } else { Style::new() }
    }

    /// Of a tier, by its place in [`TIERS`](crate::sample::TIERS).
    pub fn tier(self, place: usize) -> Style {
        let colours = [Color::LightMagenta, Color::LightCyan, Color::LightBlue];
        self.colour(colours.get(place).copied().unwrap_or(Color::Reset))
    }

    /// Of a change, or of a state.
    pub fn weight(self, weight: Weight) -> Style {
        match weight {
            Weight::Good => self.colour(Color::Green),
            Weight::Neutral => Style::new(),
            Weight::Bad => self.colour(Color::LightRed).add_modifier(Modifier::BOLD),
        }
    }

    /// Of a way to a CPU: idle path, orders, user space.
    pub fn path(self, place: usize) -> Style {
        let colours = [Color::Green, Color::Yellow, Color::LightMagenta];
        self.colour(colours.get(place).copied().unwrap_or(Color::Reset))
    }

    /// Of what matters less: frames, labels, keys.
    pub fn faint(self) -> Style {
        self.colour(Color::DarkGray)
    }

    /// Of titles.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Of the selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_switches_every_colour_off() {
        let plain = Palette::of(Some(OsStr::new("1")));
        assert_eq!(plain, Palette::plain());
        assert_ne!(plain, Palette::of(None));
        assert_eq!(Palette::of(Some(OsStr::new(""))), Palette::of(None), "empty counts as unset");
        let styles = [plain.tier(0), plain.path(1), plain.faint(), plain.weight(Weight::Bad)];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}
