// Arrays that the page carries: base64 of one deflated stream, in which the bytes of each array
// stand plane by plane, so that alike bytes are neighbours.

/** Bytes of text in base64. */
function bytesOf(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** What Python's zlib made small. */
async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Numbers in double precision from their eight planes. */
function doublesOf(planes, at, n) {
  const bytes = new Uint8Array(8 * n);
  for (let plane = 0; plane < 8; plane++)
    for (let i = 0; i < n; i++) bytes[8 * i + plane] = planes[at + plane * n + i];
  return new Float64Array(bytes.buffer);
}

/** Weights from three planes: whole numbers of 24 bits, times the scale of their row. */
function weightsOf(planes, at, n, scales) {
  const found = new Float32Array(n), width = n / scales.length;
  for (let row = 0, i = 0; row < scales.length; row++)
    for (const end = i + width; i < end; i++) {
      const high = planes[at + 2 * n + i] << 24, middle = planes[at + n + i] << 16;
      found[i] = ((high | middle | planes[at + i] << 8) >> 8) * scales[row];
    }
  return found;
}

/** All arrays by name. `directory` lists [name, kind, length] in the order of the stream. */
async function readTensors(text, directory) {
  const planes = await inflated(bytesOf(text)), found = {};
  let at = 0;
  for (const [name, kind, n] of directory) {
    if (kind === "weights") {
      found[name] = weightsOf(planes, at, n, found[`${name} scales`]);
      at += 3 * n;
    } else {
      found[name] = doublesOf(planes, at, n);
      at += 8 * n;
    }
  }
  return found;
}
