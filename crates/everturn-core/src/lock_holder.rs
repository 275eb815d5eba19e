//! Finding the process that holds a lock on a file.

use std::fmt;
use std::path::Path;

/// The process that holds a lock on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    process: u32,
    name: Option<String>,
    is_stopped: bool,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        if self.process == std::process::id() {
            f.write_str(", which is this process,")?;
        } else if self.is_stopped {
            f.write_str(", which is stopped,")?;
        }
        Ok(())
    }
}

/// Returns the process that holds an exclusive lock on a byte of a file, for error messages.
///
/// Available on Linux only. Returns `None` on other systems, for a lock that was released meanwhile, and for
/// a process of another container. The file is not opened, because closing it would release this process's
/// own locks on it.
pub fn lock_holder(file: &Path, byte: u64) -> Option<LockHolder> {
    let file = identity(file)?;
    // The kernel prints the list in pieces, and a lock is missed if another one is released between two
    // pieces.
    let process =
        (0..3).find_map(|_| holder_in(&std::fs::read_to_string("/proc/locks").ok()?, file, byte))?;
    let about = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let name = about.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    Some(LockHolder {
        process,
        name: name.map(|(name, _)| name.to_owned()),
        is_stopped: name.is_some_and(|(_, state)| state.trim_start().starts_with(['T', 't'])),
    })
}

/// The numbers of a file's device and inode.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(file: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;

    let file = std::fs::metadata(file).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// Finds the holder in the text of `/proc/locks`. Some file systems report another device there than
/// elsewhere, so a lock on a file of this inode number on another device counts if it is the only one.
fn holder_in(locks: &str, (device, inode): Identity, byte: u64) -> Option<u32> {
    let same_number: Vec<(u64, u32)> = locks
        .lines()
        .filter_map(|line| exclusive_lock(line, byte))
        .filter(|(_, locked, _)| *locked == inode)
        .map(|(device, _, process)| (device, process))
        .collect();
    let same_device = same_number.iter().find(|(locked, _)| *locked == device);
    let found = same_device.or(match same_number.as_slice() {
        [only] => Some(only),
        _ => None,
    });
    found.map(|(_, process)| *process)
}

/// Parses a line, such as `1: POSIX ADVISORY WRITE 4711 fe:00:6081090 120 120`, into a device, an inode and a
/// process.
fn exclusive_lock(line: &str, byte: u64) -> Option<(u64, u64, u32)> {
    let mut words = line.split_whitespace().skip(1);
    // An arrow marks a process that waits.
    let _kind = words.next().filter(|kind| *kind != "->")?;
    let _advice = words.next()?;
    let _write = words.next().filter(|mode| *mode == "WRITE")?;
    let process = words.next()?.parse().ok().filter(|process| *process > 0)?;
    let mut place = words.next()?.split(':');
    let mut number = || u64::from_str_radix(place.next()?, 16).ok();
    let (major, minor) = (number()?, number()?);
    let inode = place.next()?.parse().ok()?;
    let (first, last) = (words.next()?.parse::<u64>().ok()?, words.next()?);
    let is_covered = first <= byte && (last == "EOF" || last.parse::<u64>().is_ok_and(|last| byte <= last));
    let device = (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32);
    is_covered.then_some((device, inode, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
        1: POSIX  ADVISORY  WRITE 4711 fe:00:99 120 120\n\
        1: -> POSIX  ADVISORY  WRITE 4712 fe:00:99 120 120\n\
        2: POSIX  ADVISORY  READ 4713 fe:00:99 124 124\n\
        3: FLOCK  ADVISORY  WRITE 4714 fe:01:77 0 EOF\n\
        4: OFDLCK ADVISORY  WRITE -1 fe:00:55 0 EOF\n";

    const DEVICE: u64 = 0xfe00;

    #[test]
    fn the_holder_of_a_byte_is_found_and_no_reader_or_waiter() {
        assert_eq!(holder_in(LOCKS, (DEVICE, 99), 120), Some(4711));
        assert_eq!(holder_in(LOCKS, (DEVICE, 99), 124), None);
        assert_eq!(holder_in(LOCKS, (DEVICE, 55), 0), None);
        assert_eq!(holder_in("", (DEVICE, 99), 120), None);
    }

    #[test]
    fn a_file_that_has_another_device_in_the_list_is_found_by_its_number() {
        assert_eq!(holder_in(LOCKS, (DEVICE, 77), 0), Some(4714));
    }

    #[test]
    fn a_holder_is_named_with_its_state() {
        let holder = LockHolder {
            process: 7,
            name: Some("worker".to_owned()),
            is_stopped: true,
        };

        assert_eq!(holder.to_string(), "process 7 (worker), which is stopped,");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_of_this_process_is_found() {
        let path = std::env::temp_dir().join(format!("everturn-lock-holder-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(lock_holder(&path, 0), None);

        file.lock().unwrap();
        let holder = lock_holder(&path, 0);
        std::fs::remove_file(&path).unwrap();

        assert_eq!(holder.map(|holder| holder.process), Some(std::process::id()));
    }
}
