import { defineConfig } from 'vite';

// The built game works from any directory, also from a file.
export default defineConfig({
  base: './',
  build: { chunkSizeWarningLimit: 4096 },
});
