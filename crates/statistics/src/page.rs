// SPDX-License-Identifier: GPL-2.0-only

//! Pieces of HTML that are XML as well, so that a test can read them.

/// Text as it may stand between tags and in quotes. Control characters are no XML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// A table of text; words of judgement get a class of their name.
pub fn table(caption: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = format!("<table><caption>{}</caption><tr>", escape(caption));
    for column in columns {
        html += &format!("<th>{}</th>", escape(column));
    }
    for row in rows {
        html += "</tr><tr>";
        for cell in row {
            let class = match cell.split(' ').next().unwrap_or_default() {
                word @ ("better" | "worse" | "met") => word,
                "MISSED" | "NOT" => "worse",
                _ => "",
            };
            html += &format!("<td class=\"{class}\">{}</td>", escape(cell));
        }
    }
    html + "</tr></table>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_in_a_cell_the_page_stays_whole() {
        let nasty = "<script>alert(\"1\")</script> & \u{0}\u{1b}\u{ffff} ]]> --> ü".to_owned();
        let html = table(&nasty, &[&nasty], &[vec![nasty.clone()]]);
        let page = roxmltree::Document::parse(&html).unwrap();
        assert!(!page.descendants().any(|node| node.has_tag_name("script")));
        let cell = page.descendants().find(|node| node.has_tag_name("td")).unwrap();
        assert!(cell.text().unwrap().starts_with("<script>alert(\"1\")</script> & \u{fffd}"));
    }
}
