// SPDX-License-Identifier: GPL-2.0-only

//! Turns an initramfs into a small Linux: file systems, users, programs, and power-off.

use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Source, target, type. devtmpfs comes first, because reports need a device.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("dev", "/dev", "devtmpfs"),
    ("devpts", "/dev/pts", "devpts"),
    ("proc", "/proc", "proc"),
    ("sys", "/sys", "sysfs"),
    ("tmp", "/dev/shm", "tmpfs"),
    ("tmp", "/run", "tmpfs"),
    ("tmp", "/tmp", "tmpfs"),
    ("bpf", "/sys/fs/bpf", "bpf"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
    ("tracefs", "/sys/kernel/tracing", "tracefs"),
    ("debugfs", "/sys/kernel/debug", "debugfs"),
];

/// Kernels may lack these two, which only help to find faults.
const OPTIONAL: &[&str] = &["tracefs", "debugfs"];

pub fn mount_everything() -> Result<()> {
    for (source, target, kind) in MOUNTS {
        // sysfs has its mount points and refuses new ones; if this fails for another reason,
        // mount() reports it.
        let _ = fs::create_dir_all(target);
        let result = mount(source, target, kind, 0);
        if !OPTIONAL.contains(kind) {
            result?;
        }
    }
    Ok(())
}

/// Mounts a file system, or, with `MS_MOVE`, moves one. With `MS_BIND` one file stands for another.
pub fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) -> Result<()> {
    let [c_source, c_target, c_kind] = [source, target, kind]
        .map(|text| CString::new(text).expect("a constant without a zero byte"));
    // SAFETY: three terminated strings that outlive the call, no data.
    let failed = unsafe {
        libc::mount(c_source.as_ptr(), c_target.as_ptr(), c_kind.as_ptr(), flags, std::ptr::null())
    } != 0;
    if failed {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("mounting {source} on {target}"));
    }
    Ok(())
}

/// Takes away what is mounted at a place, also while a process has it open.
pub fn unmount(target: &str) -> Result<()> {
    let place = CString::new(target).expect("a constant without a zero byte");
    // SAFETY: a terminated string that outlives the call.
    if unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) } != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("unmounting {target}"));
    }
    Ok(())
}

/// Makes users, the loopback interface and the busybox applets. The scheduler creates its socket in
/// `/var/run`.
pub fn prepare_user_land() -> Result<()> {
    fs::create_dir_all("/etc").context("creating /etc")?;
    fs::write("/etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        .context("writing /etc/passwd")?;
    fs::write("/etc/group", "root:x:0:\nnogroup:x:65534:\n").context("writing /etc/group")?;
    fs::create_dir_all("/var").context("creating /var")?;
    symlink("/run", "/var/run").context("linking /var/run")?;
    // SAFETY: the agent has one thread at this point, so no thread reads the environment meanwhile.
    unsafe { std::env::set_var("PATH", "/bin:/sbin:/usr/bin:/usr/sbin") };
    let installed = Command::new("/bin/busybox").args(["--install", "-s", "/bin"]).status();
    if !installed.context("running busybox")?.success() {
        bail!("busybox could not install its applets");
    }
    // A kernel without network has no loopback; no scenario needs it.
    let _ = Command::new("/bin/ip").args(["link", "set", "lo", "up"]).status();
    Ok(())
}

/// Gives this process the lowest real-time priority. Its children start as ordinary tasks again.
pub fn become_real_time() -> Result<()> {
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
        .context("taking a real-time priority for the agent")
}

/// Runs `work` as an ordinary task. As a real-time one it would hold up the tasks of its CPU.
pub fn as_ordinary_task<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    set_policy(libc::SCHED_OTHER, 0).context("giving the real-time priority up")?;
    let done = work();
    become_real_time()?;
    done
}

/// Sets scheduling class and real-time priority of this thread.
fn set_policy(policy: libc::c_int, sched_priority: libc::c_int) -> std::io::Result<()> {
    let priority = libc::sched_param { sched_priority };
    // SAFETY: pid 0 is the caller and the parameter block lives on the stack.
    match unsafe { libc::sched_setscheduler(0, policy, &priority) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Reaps orphans until the agent has ended.
pub fn reap_until_exit(agent: libc::pid_t) {
    loop {
        // SAFETY: waits for any child; the status is not wanted.
        let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
        let interrupted =
            pid < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if pid == agent || (pid < 0 && !interrupted) {
            return;
        }
    }
}

/// Powers the machine off. If it cannot, the restart ends QEMU as well.
pub fn power_off() -> ! {
    // SAFETY: plain system calls that end the machine.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        libc::reboot(libc::RB_AUTOBOOT);
    }
    loop {
        std::thread::park();
    }
}
