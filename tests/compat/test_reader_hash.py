#!/usr/bin/env python3
"""Check the hashes of tools/belay_reader.py against values computed with the reference implementation (xxhash 0.8.1).

TEST_SRC is the top of the project; without it, the place of this file tells. Exit status 0 = all values match.
"""

import importlib.util
import os
import sys

# Length of the input, XXH3-64, XXH3-128 (high 64 bits first, as it is usually printed).
TABLE = (
    (0, 0x2d06800538d394c2, 0x99aa06d3014798d86001c324468d497f),
    (1, 0x429e81bc6744101c, 0xbeff62be44bc9be4429e81bc6744101c),
    (2, 0xa65771cbfd464c2d, 0xe06f6948991f8637a65771cbfd464c2d),
    (3, 0x32dbb5c7774cc94f, 0x9dce807f4a9aaa5632dbb5c7774cc94f),
    (4, 0x65775238ca34c06f, 0x9772187e76395ea05def542b8e8255bb),
    (5, 0xd3bdebb681920cdf, 0x7f628d5a7483bbec7a25306dedbc0165),
    (7, 0x39027a52dcba383e, 0x5bbb70e0ee1f5cc5e267753bba306a83),
    (8, 0x90b760c9d253d0ff, 0x29a3277f85f28675da3ca77f4508da63),
    (9, 0x15ae9f843bb50ea4, 0x57fc1cef528bd18785e53a642b77ffab),
    (12, 0x8b715eccbb8c022c, 0x1f204d9220906ac76291f44304248516),
    (15, 0x54b0978486c08a15, 0x4af2793202a8fe7be20dec4c2b218fde),
    (16, 0x372c92fa68129c98, 0xf8ae1a6f144fb00b4c6929dc65a535a0),
    (17, 0xb5d6b9c1898bd9d6, 0x0ad716e7cfed9dc843287186cdfec85d),
    (24, 0x77ada19713213619, 0x4a6f9a28db405ba6673601da42ff405d),
    (31, 0x79c8355e61bb90b5, 0x1ae034feacc709368fde70e01d7376ea),
    (32, 0x0ab1dbf9e9f8c22c, 0x3061e37048c04caacf805526ea96182f),
    (33, 0x4f4ae280e8465c3c, 0x7787bc63ca3818d69fc38e5c19be3ef3),
    (48, 0xcb8086c34610a21c, 0x909cc179f12292636cafd1a357d942ba),
    (64, 0x84fcac4cce9f990d, 0x87477a4bb45568ed4cbebc1074a4c793),
    (65, 0x2c9f18dff914a8bd, 0x1df8ba4eac471be18f4238b9da164902),
    (80, 0x814e049111d7eab0, 0x0f0c85fe2a37fd03d59bcae7c10a476a),
    (96, 0xe1e1ba1b4e47ded7, 0x6eea949b1d64d297bc2bc1d3d2a98617),
    (97, 0x5cc877781800cb6b, 0x3abe16c7b27cae022dc297aec6120b11),
    (112, 0xdaa88a9d4fef52be, 0xace495106bce0d9479bd89438a2f7735),
    (127, 0xc33e60b9db382d32, 0x4b6c4e49dcd2cf023712628b027d3e24),
    (128, 0xc59e505a97d029e0, 0x2b83749a25627c556772960c7e09e15b),
    (129, 0xf9e651a476d6d3ca, 0xd2c5fdf14399d768d15020c0444d308f),
    (143, 0x4916c14bd2fd8e2a, 0xb9b3a6c7a417895c9174379878bcfbef),
    (144, 0x6630fc8e0296f27f, 0x6225c83500268cc7b0f60b4c1fca358f),
    (159, 0xa92d4b6d657c5f38, 0xdd06d145c9c25d5691c65e6677692ea4),
    (160, 0x35073e7743b6b66a, 0x0cbccabccae4eb0df9025b7b4fa59974),
    (161, 0xedadb78009cccbdb, 0xf6df3624ec3bfe92473c78231fc88195),
    (192, 0xadf94aa2ceb17135, 0x9918b650e7e209cdc8c05fb162159990),
    (239, 0x4d083af3e4a9a1cf, 0x4a7316f241d6d324ffda43ed497caa57),
    (240, 0x967597e635f3c527, 0xb2c3c2aa029b2279e16f608e11e76335),
    (241, 0xd6afac6f8fa85b01, 0xe75e577a31d24834d6afac6f8fa85b01),
    (255, 0x22062a421972fdde, 0x5afba4ec2dcd2de122062a421972fdde),
    (256, 0x9e6593bab96413da, 0x5f3bd3b68315e0249e6593bab96413da),
    (257, 0xc7f456fff4eaca08, 0xbd1fb14b2159e83dc7f456fff4eaca08),
    (300, 0x85cda8a8f5619a09, 0x921f39fde62482a185cda8a8f5619a09),
    (511, 0xf8e3fbcf89733a1a, 0x7b98a151fb3889b2f8e3fbcf89733a1a),
    (512, 0x426b67e0356d303d, 0x962be99a28940a20426b67e0356d303d),
    (1023, 0x120a0457e3e899f6, 0xdfd1bc5c5a55d341120a0457e3e899f6),
    (1024, 0xbb9f0c3761cdfd54, 0x1ac8856c8b289d9abb9f0c3761cdfd54),
    (1025, 0x95edccc1adc4d895, 0x15379a00bb4cec9895edccc1adc4d895),
    (1087, 0xb954c65e909b59e2, 0x3ca55e2b3e633f3cb954c65e909b59e2),
    (1088, 0xe8391a3978cbcf06, 0x1d6f34c84443eb69e8391a3978cbcf06),
    (1089, 0xb6e2a9bc2973e16a, 0x25e03fd6d43a0e67b6e2a9bc2973e16a),
    (2048, 0x278f7a6a39416b51, 0xdda6abe2811d8216278f7a6a39416b51),
    (2049, 0x644272755e8980a0, 0x8030e23166b51b02644272755e8980a0),
    (4096, 0x436f521f6688c5ed, 0x4c4887f46fb49f41436f521f6688c5ed),
    (4097, 0xa0336bc14e166395, 0x7f4f13f3aec0e15ba0336bc14e166395),
    (16384, 0x0b9eba15ef84a59d, 0xfa748a12f2cfe7e70b9eba15ef84a59d),
    (16385, 0x18f80f278a493e81, 0x5f7a7ac654ab9c5918f80f278a493e81),
    (20000, 0xfbb296745f1339a6, 0x8dfe4a3b9f925413fbb296745f1339a6),
    (65536, 0xb25b6166131fa281, 0x9f30f0a857570d69b25b6166131fa281),
)


def make_input(size):
    """Bytes from a linear congruential generator: the top byte of each state."""
    out, x = bytearray(size), 1
    for i in range(size):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = x >> 24
    return bytes(out)


def load_reader():
    """The reader as a module."""
    top = os.environ.get("TEST_SRC") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("belay_reader", os.path.join(top, "tools", "belay_reader.py"))
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    return reader


def main():
    """Compare all values; the exit status."""
    reader = load_reader()
    data = make_input(max(row[0] for row in TABLE))
    failures = 0
    for size, want64, want128 in TABLE:
        part = data[:size]
        low, high = reader.xxh3_128(part)
        stored = want128.to_bytes(16, "little")     # low half first: the order of the format
        for name, good in (("XXH3-64", reader.xxh3_64(part) == want64),
                           ("XXH3-128", (high << 64 | low) == want128),
                           ("stored H128", reader.h128(part) == stored)):
            if not good:
                print("%s of %d bytes is wrong" % (name, size))
                failures += 1
    print("%d lengths, %d failures" % (len(TABLE), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
