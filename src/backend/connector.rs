// SPDX-License-Identifier: GPL-2.0-only

//! The generated connector of `scx_rustland_core`, and what it lacks.

#![allow(dead_code, unused_imports, clippy::all, clippy::pedantic, clippy::unwrap_used)]

/// Attaches the loaded backend: this name hides the imported one. An upgraded worker ends the
/// one before it as late as possible, when only the scheduler itself is left to attach.
macro_rules! scx_ops_attach {
    ($skel:expr, $ops:ident) => {
        libbpf_rs::skel::Skel::attach(&mut $skel)
            .context("the programs beside the scheduler cannot be attached")
            .and_then(|()| crate::takeover::before_attach())
            .and_then(|_short| {
                $skel.maps.$ops.attach_struct_ops().context("the scheduler cannot be attached")
            })
            .inspect(|_| crate::takeover::attached())
    };
}

/// Loads the backend with one flag more: `backend_patches/exiting_queue.h`.
macro_rules! scx_ops_load {
    ($skel:expr, $ops:ident, $uei:ident) => {{
        $skel.struct_ops.rustland_mut().flags |= *compat::SCX_OPS_ENQ_EXITING;
        scx_utils::scx_ops_load!($skel, $ops, $uei)
    }};
}

/// Handles signals as the connector wants it. This name hides that of the library. A worker that is
/// stuck in a round sees no flag, and without its supervisor no other process would end it.
mod ctrlc {
    pub(super) fn set_handler(
        mut handler: impl FnMut() + Send + 'static,
    ) -> Result<(), ::ctrlc::Error> {
        ::ctrlc::set_handler(move || {
            handler();
            crate::process::end_if_stuck();
        })
    }
}

include!(concat!(env!("OUT_DIR"), "/src/bpf.rs"));

impl BpfScheduler<'_> {
    /// The ring of decisions, for calls that must not allocate.
    pub(super) fn user_ring(&self) -> *mut libbpf_rs::libbpf_sys::user_ring_buffer {
        libbpf_rs::AsRawLibbpf::as_libbpf_object(&self.dispatched).as_ptr()
    }

    /// Whether a signal has asked this process to end.
    pub(super) fn signalled(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }

    /// Unloads the backend.
    pub(super) fn unload(&mut self) {
        drop(self.struct_ops.take());
    }
}
