// SPDX-License-Identifier: GPL-2.0-only

//! Things that are expensive to get, kept between runs.
//!
//! An item is a folder that appears whole, by one rename, or not at all. So a download that was
//! interrupted leaves nothing that a later run could mistake for an item, and two harnesses at once
//! wait for each other per item.

use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

pub struct Cache {
    folder: PathBuf,
}

/// Held while the value lives; the kernel lets go when the process dies.
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
        // Programs run with another working folder, so a relative name would not do.
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

    /// The item's folder; `fill` is called with an empty folder if there is none yet.
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
        // Under the lock nobody else is filling it: what is there was left by an interrupted run.
        remove_folder(&partial)?;
        fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
        fill(&partial)?;
        fs::rename(&partial, &path).with_context(|| format!("completing {}", path.display()))?;
        Ok(path)
    }

    /// One process at a time behind this name; waits for the others.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let (path, file) = self.lock_file(name)?;
        if !try_lock(&path, &file)? {
            eprintln!("waiting for another run that uses {}", path.display());
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Ok(Lock { _file: file })
    }

    /// The same, but `None` while another one holds it.
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
