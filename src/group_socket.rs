// SPDX-License-Identifier: GPL-2.0-only

//! `--stats-group` and `--profile-group`: a socket for the members of a group, whose server knows
//! no request but those that the group may make.
//!
//! Only the group may enter the folder in which the socket is: to give a folder to a group takes
//! privileges that this process drops before it serves, and the socket is made only then.

use super::trusted;
use anyhow::{Context, Result, anyhow, ensure};
use pandemonium_host::durable;
use pandemonium_host::failure::Failure;
use pandemonium_host::trust::effective_user;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Beside the socket of the scheduler's user.
const PARENT: &str = "/var/run/scx/root";
/// Other members of the group may enter, and see no list of names.
const ENTERED_BY_GROUP: u32 = 0o710;
/// Who is in the folder may connect.
const FOR_ALL: u32 = 0o666;

/// What the members of a group may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Read statistics and the list of tasks.
    Statistics,
    /// See and choose the profile.
    Profile,
}

impl Grant {
    /// The folder that the group may enter.
    fn folder(self) -> &'static str {
        match self {
            Grant::Statistics => "scx_pandemonium_user.group",
            Grant::Profile => "scx_pandemonium_user.profile",
        }
    }

    fn socket(self) -> &'static str {
        match self {
            Grant::Statistics => "stats",
            Grant::Profile => "tune",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Grant::Statistics => "--stats-group",
            Grant::Profile => "--profile-group",
        }
    }

    fn deed(self) -> &'static str {
        match self {
            Grant::Statistics => "read statistics",
            Grant::Profile => "choose the profile",
        }
    }

    /// Where the socket is.
    pub fn path(self) -> PathBuf {
        Path::new(PARENT).join(self.folder()).join(self.socket())
    }
}

/// The socket, in a folder that its group may enter.
#[derive(Debug)]
pub struct GroupSocket(Grant);

impl GroupSocket {
    /// Makes the folder and gives it to the group, a name or a number. To be called before this
    /// process drops its privileges.
    ///
    /// # Errors
    ///
    /// If there is no such group, the process may not give the folder away, or another user could
    /// change what is there.
    pub fn prepare(group: &str, grant: Grant) -> Result<GroupSocket, Failure> {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let number = number(&groups, group).ok_or_else(|| {
            let option = grant.option();
            Failure::Usage(format!("there is no group {group:?} for {option}: see /etc/group"))
        })?;
        let prepared = fs::create_dir_all(PARENT)
            .map_err(anyhow::Error::from)
            .and_then(|()| give_folder(Path::new(PARENT), grant.folder(), number));
        prepared.map(|()| GroupSocket(grant)).map_err(|error| {
            let deed = grant.deed();
            Failure::Usage(format!("the group {group} cannot {deed}: {error:#}"))
        })
    }

    /// What its group may do.
    pub fn grant(&self) -> Grant {
        self.0
    }

    /// Lets the group connect to the socket that was made.
    pub fn open_to_group(&self) -> Result<()> {
        let for_all = Permissions::from_mode(FOR_ALL);
        fs::set_permissions(self.0.path(), for_all).context("for the group")
    }
}

/// The number of a group, given by name or number.
fn number(groups: &str, wanted: &str) -> Option<u32> {
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == wanted).then(|| fields.nth(1)?.parse().ok())?
    });
    named.or_else(|| wanted.parse().ok())
}

/// Makes the folder below `parent`, which only this user and root may change, and lets the group
/// enter it. Whatever else has its name, a link included, is refused and left alone.
fn give_folder(parent: &Path, name: &str, group: u32) -> Result<()> {
    let parent = trusted::directory(parent).map_err(|refused| anyhow!("{refused}"))?;
    let path = durable::inside(&parent).join(name);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let folder = durable::directory(&path).with_context(|| format!("{name} is no folder"))?;
    let found = folder.metadata()?;
    let user = effective_user();
    ensure!(found.uid() == user, "{name} belongs to user {}", found.uid());
    if found.gid() != group {
        // Those who could enter before cannot any more.
        folder.set_permissions(Permissions::from_mode(0o700))?;
        give(&folder, group).context(
            "its folder cannot be given to it; start as root, or as a member of the group (in a \
             systemd unit: SupplementaryGroups=)",
        )?;
    }
    Ok(folder.set_permissions(Permissions::from_mode(ENTERED_BY_GROUP))?)
}

fn give(folder: &File, group: u32) -> std::io::Result<()> {
    let same_user = u32::MAX;
    // SAFETY: a plain system call, on an open folder.
    match unsafe { libc::fchown(folder.as_raw_fd(), same_user, group) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb_file::tests::Scratch;
    use std::os::unix::fs::symlink;

    const FOLDER: &str = "for-a-group";

    fn own_group() -> u32 {
        // SAFETY: a plain call without arguments.
        unsafe { libc::getegid() }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_group_has_a_name_or_a_number() {
        let groups = "root:x:0:\nbroken\nwheel:x:998:alice,bob\nodd:x:none:\n";
        assert_eq!([number(groups, "wheel"), number(groups, "7")], [Some(998), Some(7)]);
        assert_eq!([number(groups, "whee"), number(groups, "odd"), number(groups, "")], [None; 3]);
        for grant in [Grant::Statistics, Grant::Profile] {
            let missing = GroupSocket::prepare("no such group", grant).unwrap_err().to_string();
            assert!(missing.contains("no such group") && missing.contains(grant.option()));
        }
    }

    #[test]
    fn each_grant_has_a_folder_of_its_own() {
        assert_ne!(Grant::Statistics.path().parent(), Grant::Profile.path().parent());
    }

    #[test]
    fn only_the_group_may_enter_the_folder() {
        let scratch = Scratch::new();
        let parent = scratch.path().with_file_name("");
        let folder = parent.join(FOLDER);
        give_folder(&parent, FOLDER, own_group()).unwrap();
        assert_eq!(mode(&folder), ENTERED_BY_GROUP);
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        give_folder(&parent, FOLDER, own_group()).unwrap();
        assert_eq!(mode(&folder), ENTERED_BY_GROUP, "an earlier folder is used, not its mode");
    }

    #[test]
    fn what_could_be_another_user_s_is_left_alone() {
        let scratch = Scratch::new();
        let parent = scratch.path().with_file_name("");
        let target = parent.join("target");
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o700)).unwrap();
        symlink(&target, parent.join(FOLDER)).unwrap();
        let refused = give_folder(&parent, FOLDER, own_group()).unwrap_err();
        assert!(format!("{refused:#}").contains("no folder"), "{refused:#}");
        assert_eq!(mode(&target), 0o700);
        fs::remove_file(parent.join(FOLDER)).unwrap();
        fs::set_permissions(&parent, Permissions::from_mode(0o777)).unwrap();
        let refused = give_folder(&parent, FOLDER, own_group()).unwrap_err();
        assert!(format!("{refused:#}").contains("every user"), "{refused:#}");
    }
}
