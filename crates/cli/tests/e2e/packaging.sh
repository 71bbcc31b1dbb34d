#!/bin/sh
# Installs the Debian packages of a folder where everything that is written is forgotten, in a mount namespace of the caller,
# and looks at what that makes.
#   packaging.sh FOLDER
set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root /mnt/packages
cp "$1"/*.deb /mnt/packages
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount --rbind /proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mkdir -p /mnt/root/packages
mount --bind /mnt/packages /mnt/root/packages
exec chroot /mnt/root sh -euc '
cd /
dpkg --install /packages/*.deb
portreeve --version
dpkg --verify portreeve portreeve-plugin
systemd-analyze verify --man=no /lib/systemd/system/portreeve-*.service
for page in portreeve portreeve-agent portreeve-controller portreeve-token; do
    gzip -t /usr/share/man/man1/$page.1.gz
done
bash -nc ". /usr/share/bash-completion/completions/portreeve"
printf "#include <portreeve.h>\nint main(void) { return pr_get_api == 0; }\n" > /tmp/p.c
gcc /tmp/p.c -o /tmp/p $(pkg-config --cflags --libs portreeve)
test "$(stat -c %a /etc/portreeve/controller.toml /etc/portreeve/agent.toml | sort -u)" = 640
portreeve controller --check-config
echo "# ours" >> /etc/portreeve/agent.toml
DEBIAN_FRONTEND=noninteractive dpkg --install /packages/portreeve_*.deb
grep -q "# ours" /etc/portreeve/agent.toml
mkdir -p /var/lib/portreeve
echo truth > /var/lib/portreeve/kept
dpkg --remove portreeve
test -e /etc/portreeve/agent.toml && ! test -e /usr/bin/portreeve
dpkg --purge portreeve portreeve-plugin
test ! -e /etc/portreeve && test -e /var/lib/portreeve/kept
for left in /usr/share/portreeve /usr/share/doc/portreeve /usr/include/portreeve.h /lib/systemd/system/portreeve-agent.service; do
    test ! -e $left || { echo "left: $left" >&2; exit 1; }
done
echo all well
'
