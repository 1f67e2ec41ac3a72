// SPDX-License-Identifier: GPL-2.0-only

//! Text of others, such as the names that tasks give themselves.

/// Whether a character is not shown as itself: it controls a terminal, ends a line, turns the
/// direction of writing, or is invisible. It could hide, reorder or forge what is printed beside
/// it. These are the control characters, the separators of lines and paragraphs, the marks of
/// annotations, and what Unicode calls `Default_Ignorable_Code_Point`.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_reorders_or_hides_text_is_not_printed() {
        let marks =
            "\x1b\n\x7f\u{9b}\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}\u{200b}\u{200d}";
        let overrides = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let odd = marks.chars().chain(overrides).chain(['\u{ad}', '\u{2060}', '\u{e0041}']);
        assert!(odd.into_iter().all(is_unprintable));
        assert!(
            !"a ~é\u{a0}\u{2009}\u{2212}\u{5d0}\u{627}\u{6f22}\u{fffd}".chars().any(is_unprintable)
        );
    }
}
