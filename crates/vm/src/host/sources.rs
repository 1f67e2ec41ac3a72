// SPDX-License-Identifier: GPL-2.0-only

//! Which Debian mirror this machine uses, and which keys it trusts for that mirror.
//!
//! It reads apt's source files, in both formats, so that no host name is fixed here and a private
//! mirror works.

use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A mirror of Debian's packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub uri: String,
    /// Path of a keyring, or the key itself as in a source file.
    pub signed_by: Option<String>,
}

/// The file with Debian's keys.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// `$SCX_VM_MIRROR`, or the first source of this machine that looks like Debian's main archive.
pub fn find_mirror() -> Result<Mirror> {
    let keyring = Path::new(DEBIAN_KEYRING).exists().then(|| DEBIAN_KEYRING.to_string());
    if let Ok(uri) = std::env::var("SCX_VM_MIRROR")
        && !uri.is_empty()
    {
        return Ok(Mirror { uri, signed_by: keyring });
    }
    for file in source_files() {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let is_deb822 = file.extension().is_some_and(|extension| extension == "sources");
        let found = if is_deb822 { from_deb822(&text) } else { from_lines(&text) };
        if let Some(mut mirror) = found {
            mirror.signed_by = mirror.signed_by.or(keyring);
            return Ok(mirror);
        }
    }
    bail!(
        "no Debian mirror in /etc/apt: set SCX_VM_MIRROR to one, or pass --kernel PATH and \
            install QEMU 8.1 or later"
    )
}

fn source_files() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(folder) = fs::read_dir("/etc/apt/sources.list.d") {
        let mut parts: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        parts.retain(|path| path.extension().is_some_and(|end| end == "list" || end == "sources"));
        parts.sort();
        files.extend(parts);
    }
    files
}

/// The main archive's address ends in `/debian`, unlike those of the security archive and other
/// repositories. A mirror list has any name, so one that names Debian is accepted.
fn is_debian_archive(uri: &str) -> bool {
    let path = uri.trim_end_matches('/');
    path.ends_with("/debian")
        || (uri.starts_with("mirror+") && path.contains("debian") && !path.contains("security"))
}

fn from_deb822(text: &str) -> Option<Mirror> {
    text.split("\n\n").find_map(|paragraph| {
        let uris = field(paragraph, "URIs")?;
        let disabled = field(paragraph, "Enabled").is_some_and(|value| value.trim() == "no");
        let uri = uris.split_whitespace().find(|uri| is_debian_archive(uri))?;
        (!disabled).then(|| Mirror { uri: uri.into(), signed_by: field(paragraph, "Signed-By") })
    })
}

/// Value of a field with its continuation lines.
fn field(paragraph: &str, name: &str) -> Option<String> {
    let mut lines = paragraph.lines().filter(|line| !line.starts_with('#'));
    let first = lines.find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_string())
    })?;
    let more = lines.take_while(|line| line.starts_with([' ', '\t']));
    Some(more.fold(first, |value, line| value + "\n" + line))
}

/// `deb [option=value …] URI suite component …`
fn from_lines(text: &str) -> Option<Mirror> {
    text.lines().map(str::trim).find_map(|line| {
        let rest = line.strip_prefix("deb ")?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let uri = rest.split_whitespace().next().filter(|uri| is_debian_archive(uri))?;
        let signed_by =
            options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(Mirror { uri: uri.into(), signed_by: signed_by.map(str::to_string) })
    })
}
