/* Layout of frames: emu/emulation/wire/frame_layout.py. */
#pragma once
enum { VERSION = 5, DATA = 2, PREFIX_BYTES = 20, SUM_BYTES = 4 };
