"""Where the data sets that may be fetched are published, and the checksums of their files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remote:
    """A published file.

    Attributes:
        file: What it is called.
        urls: Where it is published, in the order in which they are tried.
        md5: The checksum that its publishers, or the libraries that have read it for years, give for it.
    """

    file: str
    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True, slots=True)
class Published:
    """The files of a data set, and the folder of the cache that they are kept in."""

    folder: str
    files: tuple[Remote, ...]


def _remote(file: str, md5: str, mirrors: tuple[str, ...]) -> Remote:
    return Remote(file, tuple(mirror + file for mirror in mirrors), md5)


_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx(folder: str, md5s: tuple[str, ...], mirrors: tuple[str, ...]) -> Published:
    return Published(folder, tuple(_remote(file, md5, mirrors) for file, md5 in zip(_IDX, md5s, strict=True)))


_NIST = (
    "https://biometrics.nist.gov/cs_links/EMNIST/",
    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/",
)
# All of EMNIST comes in one archive, which its splits share.
_EMNIST = Published("emnist", (_remote("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", _NIST),))
_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_STANFORD = ("http://ufldl.stanford.edu/housenumbers/", "https://ufldl.stanford.edu/housenumbers/")
_LIBSVM = ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",)

PUBLISHED: dict[str, Published] = {
    "mnist": _idx(
        "mnist",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
    ),
    "fashion-mnist": _idx(
        "fashion-mnist",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ),
    ),
    "kmnist": _idx(
        "kmnist",
        (
            "bdb82020997e1d708af4cf47b453dcf7",
            "e144d726b3acfaa3e44228e80efcd344",
            "5c965bf0a639b31b8f53240b1b52f4d7",
            "7320c461ea6c1c855c0b718fb2a4b134",
        ),
        (
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        ),
    ),
    "emnist": _EMNIST,
    "emnist-letters": _EMNIST,
    "svhn": Published(
        "svhn",
        (
            _remote("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", _STANFORD),
            _remote("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", _STANFORD),
        ),
    ),
    "cifar10": Published(
        "cifar10", (_remote("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", _TORONTO),)
    ),
    "cifar100": Published(
        "cifar100", (_remote("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", _TORONTO),)
    ),
    "usps": Published(
        "usps",
        (
            _remote("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197", _LIBSVM),
            _remote("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118", _LIBSVM),
        ),
    ),
}
"""The files of every data set that engram fetches by itself.

Each file has an official checksum, and nothing is used that does not match it. The other data sets ask
for a registration or an agreement, or are too large to download without being asked: users provide them.
"""

LABEL_OWNERS: dict[str, str] = {
    "a25bea736e30d166cdddb491f175f624": "mnist",
    "9018921c3c673c538a1fc5bad174d6f9": "fashion-mnist",
    **{PUBLISHED[name].files[1].md5: name for name in ("mnist", "fashion-mnist", "kmnist")},
}
"""Whose training labels a file holds, by its md5: MNIST and its look-alikes use the same file names.

The first two are those of the uncompressed files.
"""
