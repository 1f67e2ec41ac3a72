# SPDX-License-Identifier: GPL-2.0-only
#
# NixOS. The scheduler and the tools in one package: `nix build '.?dir=packaging'`.
{
  description = "CPU scheduler that decides in user space, for kernels with sched_ext";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      manifest = builtins.fromTOML (builtins.readFile ../Cargo.toml);
    in
    {
      packages.${system}.default = pkgs.rustPlatform.buildRustPackage {
        pname = manifest.package.name;
        version = manifest.workspace.package.version;
        src = ../.;
        cargoLock.lockFile = ../Cargo.lock;

        nativeBuildInputs = [ pkgs.pkg-config ];
        buildInputs = [ pkgs.elfutils pkgs.libseccomp pkgs.zlib ];
        # The wrapped clang adds options that the BPF target does not have.
        BPF_CLANG = "${pkgs.llvmPackages.clang-unwrapped}/bin/clang";
        LIBCLANG_PATH = "${pkgs.lib.getLib pkgs.llvmPackages.libclang}/lib";

        cargoBuildFlags = [ "--workspace" ];
        # They boot virtual machines.
        doCheck = false;
        installPhase = ''
          PREFIX=$out packaging/install install target/*/release
        '';

        meta = {
          license = pkgs.lib.licenses.gpl2Only;
          mainProgram = manifest.package.name;
          platforms = [ system ];
        };
      };
    };
}
