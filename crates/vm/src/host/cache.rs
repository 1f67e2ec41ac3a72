// SPDX-License-Identifier: GPL-2.0-only

//! Files that are expensive to get, kept between runs.
//!
//! An item is a folder that appears complete, by one rename, or not at all. So an interrupted
//! download leaves nothing that a later run could take for an item. Two runs that need the same
//! item wait for each other.

use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

pub struct Cache {
    folder: PathBuf,
}

/// A lock, held as long as the value. The kernel releases it when the process dies.
pub struct Lock {
    _file: File,
}

impl Cache {
    /// `$SCX_VM_CACHE`, or the usual place for a user's caches.
    pub fn open() -> Result<Cache> {
        let folder = match (
            path_variable("SCX_VM_CACHE"),
            path_variable("XDG_CACHE_HOME"),
            path_variable("HOME"),
        ) {
            (Some(folder), _, _) => folder,
            (None, Some(base), _) => base.join("scx_pandemonium_user/vm"),
            (None, None, Some(home)) => home.join(".cache/scx_pandemonium_user/vm"),
            (None, None, None) => anyhow::bail!(
                "no folder for the cache: set SCX_VM_CACHE to one that can be written"
            ),
        };
        fs::create_dir_all(&folder).with_context(|| {
            format!(
                "cannot create the cache {}; set SCX_VM_CACHE to a folder that can be written",
                folder.display()
            )
        })?;
        // Programs run in another working folder, so the path must be absolute.
        let folder =
            folder.canonicalize().with_context(|| format!("looking at {}", folder.display()))?;
        Ok(Cache { folder })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where an item is, if it is complete.
    pub fn existing(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.join(name);
        path.is_dir().then_some(path)
    }

    /// The item's folder. If it does not exist, `fill` is called with an empty folder.
    pub fn item(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        if let Some(path) = self.existing(name) {
            return Ok(path);
        }
        let _lock = self.lock(name)?;
        if let Some(path) = self.existing(name) {
            return Ok(path);
        }
        let path = self.folder.join(name);
        let partial = self.folder.join(format!("{name}.partial"));
        // Under the lock no other process fills it: an interrupted run left these files.
        remove_folder(&partial)?;
        fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
        fill(&partial)?;
        fs::rename(&partial, &path).with_context(|| format!("completing {}", path.display()))?;
        Ok(path)
    }

    /// Takes the lock of this name, and waits for processes that hold it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let (path, file) = self.lock_file(name)?;
        if !try_lock(&path, &file)? {
            eprintln!("waiting for another run that uses {}", path.display());
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Ok(Lock { _file: file })
    }

    /// The same, but returns `None` if another process holds it.
    pub fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        let (path, file) = self.lock_file(name)?;
        Ok(try_lock(&path, &file)?.then_some(Lock { _file: file }))
    }

    fn lock_file(&self, name: &str) -> Result<(PathBuf, File)> {
        let path = self.folder.join(format!("{name}.lock"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok((path, file))
    }
}

fn try_lock(path: &Path, file: &File) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("locking {}", path.display()))
        }
    }
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
