//! A small file system of a test's own.

use std::fs;
use std::path::PathBuf;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A small file system on a folder until the value goes.
pub(crate) struct Tmpfs {
    folder: PathBuf,
    kib: u32,
}

impl Tmpfs {
    /// One of so many KiB on a folder that it makes.
    pub(crate) fn on(folder: PathBuf, kib: u32) -> Self {
        fs::create_dir(&folder).unwrap();
        let options = format!("size={kib}k,mode=0700");
        mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Self { folder, kib }
    }

    pub(crate) fn remount(&self, flags: MsFlags) {
        let options = format!("size={}k", self.kib);
        mount(None::<&str>, &self.folder, None::<&str>, MsFlags::MS_REMOUNT | flags, Some(options.as_str())).unwrap();
    }

    /// Takes all the room that there is.
    pub(crate) fn fill(&self) {
        let block = vec![0; 4096];
        let mut file = fs::File::create(self.folder.join("fill")).unwrap();
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.folder.join("fill")).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = umount2(&self.folder, MntFlags::MNT_DETACH);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{}: {unmounted:?}", self.folder.display());
    }
}
